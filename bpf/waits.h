/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * How long packets waited for the poll that found them.
 */
#ifndef AUTOTUNE_WAITS_H
#define AUTOTUNE_WAITS_H

#define RING_POINTS 8
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
 * ring_points spreads the packets of one poll over the time in which they came,
 * or over that since the first of them came.
 */
__attribute__((noinline)) int ring_points(__u32 slot, __u64 gap, __u32 work, bool spread)
{
	struct napi_delays *waits = delays_of(slot);
	__u32 points = work < RING_POINTS ? work : RING_POINTS;
	__u32 each, more, i;
	__u64 step, wait;

	if (!waits || points == 0)
		return 0;
	each = work / points;
	more = work % points;
	step = gap / points;
	wait = spread ? step / 2 : step;
	for (i = 0; i < RING_POINTS; i++) {
		if (i >= points)
			break;
		record(&waits->ring_wait, wait, each + (i < more));
		wait += step;
	}
	return 0;
}

/* ring_wait counts how long the packets of one poll waited. */
static __always_inline void ring_wait(__u32 slot, __u64 gap, __u32 work, bool spread)
{
	struct napi_delays *waits;

	if (work > 1) {
		ring_points(slot, gap, work, spread);
		return;
	}
	waits = delays_of(slot);
	if (waits)
		record(&waits->ring_wait, spread ? gap / 2 : gap, 1);
}

#endif
