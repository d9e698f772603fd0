/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The timer of each NAPI, which defers its interrupt and bounds its suspension.
 */
#ifndef AUTOTUNE_TIMERS_H
#define AUTOTUNE_TIMERS_H

/*
 * Timers of other owners are told apart by their function, so that no kernel
 * symbol needs to be resolved. The NAPI is then the structure around the timer.
 */
static __always_inline struct napi_struct *timer_owner(struct hrtimer *timer)
{
	if (!watchdog || (__u64)READ(timer, function) != watchdog)
		return NULL;
	return (void *)((__u64)timer - bpf_core_field_offset(struct napi_struct, timer));
}

static __always_inline struct napi_state *owner_state(struct napi_struct *napi)
{
	__u32 id = 0;

	bpf_core_read(&id, sizeof(id), &napi->napi_id);
	return id ? followed_napi(id) : NULL;
}

/*
 * suspends_above returns what tells the suspend timeout from the flush timeout:
 * the middle between both. 0 where nothing is suspended.
 */
static __always_inline __u64 suspends_above(struct napi_struct *napi)
{
	unsigned long flush = 0, suspend = 0;

	/* Both moved into the NAPI with the suspension. */
	if (!bpf_core_field_exists(napi->irq_suspend_timeout) ||
	    !bpf_core_field_exists(napi->gro_flush_timeout))
		return 0;
	bpf_core_read(&flush, sizeof(flush), &napi->gro_flush_timeout);
	bpf_core_read(&suspend, sizeof(suspend), &napi->irq_suspend_timeout);
	return suspend > flush ? (suspend + flush) / 2 : 0;
}

/*
 * notice_suspension tells an epoll_wait that suspends the interrupt
 * (napi_suspend_irqs) from the other arms by how far away the timer's end is.
 * Only processes do it, so that softirqs need not read the clock.
 */
static __always_inline void notice_suspension(struct napi_state *state, struct napi_counts *seen,
					      struct hrtimer *timer, struct napi_struct *napi)
{
	struct cpu_state *cpu;
	__u64 now, above;

	state->safety = 0;
	if (state->starter != STARTER_APPLICATION || !bpf_core_field_exists(timer->_softexpires))
		return;
	cpu = this_cpu();
	if (!cpu || cpu->in_net_rx)
		return;
	above = suspends_above(napi);
	if (!above)
		return;
	now = bpf_ktime_get_ns();
	if ((__s64)(READ(timer, _softexpires) - now) <= (__s64)above)
		return;
	state->safety = 1;
	if (state->suspended_at)
		return;
	state->suspended_at = now;
	seen->suspended++;
}

TRACEPOINT("hrtimer_start")
int BPF_PROG(hrtimer_start, struct hrtimer *timer)
{
	struct napi_struct *napi = timer_owner(timer);
	struct napi_state *state;
	struct napi_counts *seen;

	if (!napi)
		return 0;
	state = owner_state(napi);
	if (!state)
		return 0;
	seen = counts_of(state);
	if (!seen) {
		count_lost();
		return 0;
	}
	seen->arms++;
	notice_suspension(state, seen, timer, napi);
	return 0;
}

TRACEPOINT("hrtimer_expire_entry")
int BPF_PROG(hrtimer_expire_entry, struct hrtimer *timer)
{
	struct napi_struct *napi = timer_owner(timer);
	struct napi_state *state;
	struct napi_counts *seen;
	unsigned long bits = 0;

	if (!napi)
		return 0;
	state = owner_state(napi);
	if (!state)
		return 0;
	seen = counts_of(state);
	if (!seen) {
		count_lost();
		return 0;
	}
	seen->fires++;
	/* napi_watchdog does nothing while the NAPI is being polled. */
	bpf_core_read(&bits, sizeof(bits), &napi->state);
	if (bits & NAPIF_STATE_SCHED)
		return 0;
	state->fired = 1;
	if (state->suspended_at) {
		if (state->safety)
			seen->expired++;
		else
			seen->flushed++;
		end_suspension(state, bpf_ktime_get_ns());
	}
	return 0;
}

#endif
