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

/*
 * ring_wait counts how long the packets of one poll waited. Those that came at
 * any time are spread over the gap: a point drawn at random in each half of it
 * gives their distribution with two values per poll, and a value costs as much
 * as counting the poll. Else the first packet waited all of it.
 */
static __always_inline void ring_wait(struct cpu_state *cpu, __u32 slot, __u64 gap, __u32 work,
				      bool spread)
{
	struct napi_delays *waits = delays_of(slot);
	__u32 at = draw(cpu), more = work - 1;
	__u64 first = gap, other = part_of(gap, at);

	if (!waits)
		return;
	if (spread) {
		more = work / 2;
		if (more)
			gap /= 2;
		first = part_of(gap, at);
		other = first + gap;
	}
	record(&waits->ring_wait, first, work - more);
	if (more)
		record(&waits->ring_wait, other, more);
}

#endif
