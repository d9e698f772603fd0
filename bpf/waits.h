/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * How long packets waited for the poll that found them.
 */
#ifndef AUTOTUNE_WAITS_H
#define AUTOTUNE_WAITS_H

/* A NAPI that nothing woke within this time was not polled again and again. */
#define MAX_POLLING_GAP 10000000ULL

/*
 * waiting_since returns since when packets may have waited for a poll that ends
 * now, and says in *spread whether they came at any time since (true) or the
 * first of them came just then (false). 0 when not known.
 */
static __always_inline __u64 waiting_since(struct napi_state *state, struct cpu_state *cpu,
					   enum loop loop, __u64 now, bool *spread)
{
	struct thread_state *thread;
	__u32 index;
	__u64 woken = 0;

	*spread = true;
	if (state->masked == MASKED_YES ||
	    (state->masked == MASKED_WHILE_BUSY && loop == LOOP_APPLICATION))
		return state->polled_at;

	if (loop == LOOP_SOFTIRQ) {
		woken = cpu->started_at;
	} else if (loop == LOOP_THREAD && state->threaded) {
		index = state->thread;
		thread = bpf_map_lookup_elem(&threads, &index);
		woken = thread ? thread->woken_at : 0;
	}
	if (woken > state->polled_at) {
		*spread = false;
		return woken;
	}
	/*
	 * Nothing woke the NAPI since: its loop was still running when it was
	 * scheduled again, right after the last poll.
	 */
	return now - state->polled_at < MAX_POLLING_GAP ? state->polled_at : 0;
}

/* From so many packets on, those of a poll are told apart. */
#define MANY_PACKETS 8

/* spread_waits counts the waits of many packets that came at any time within a
 * gap: some in each part of it. */
static __noinline void spread_waits(struct napi_delays *waits, __u64 gap, __u32 work)
{
	__u32 i, left = work;

	for (i = 0; i < MANY_PACKETS; i++) {
		__u32 n = left / (MANY_PACKETS - i);

		add_value(&waits->ring_wait, gap * (2 * i + 1) / (2 * MANY_PACKETS), n);
		left -= n;
	}
}

/*
 * ring_wait counts how long the packets of one poll waited. Those that came at
 * any time are spread over the gap: a point drawn at random gives their
 * distribution, and a value costs as much as counting the poll. Else the first
 * packet waited all of it, and the others came in between.
 *
 * One CPU at a time polls a NAPI, so that nothing needs to be locked. The next
 * may begin while the program of the last poll still runs; what that loses once
 * in a long while is one value of a distribution.
 */
static __always_inline void ring_wait(struct napi_state *state, __u64 gap, __u32 work, bool spread)
{
	struct napi_delays *waits = delays_of(state->slot);

	if (!waits)
		return;
	if (!spread) {
		add_value(&waits->ring_wait, gap, 1);
		if (--work == 0)
			return;
	}
	if (unlikely(work > MANY_PACKETS)) {
		spread_waits(waits, gap, work);
		return;
	}
	add_value(&waits->ring_wait, part_of(gap, draw(&state->random)), work);
}

#endif
