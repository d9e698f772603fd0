/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Polls: who ran them, what started them, what they found.
 */
#ifndef AUTOTUNE_POLLS_H
#define AUTOTUNE_POLLS_H

static __always_inline __u32 deferred_irqs(struct napi_struct *napi)
{
	if (bpf_core_field_exists(napi->defer_hard_irqs))
		return READ(napi, defer_hard_irqs);
	return READ_VIA(napi, dev, napi_defer_hard_irqs);
}

static __always_inline __u64 flush_timeout(struct napi_struct *napi)
{
	if (bpf_core_field_exists(napi->gro_flush_timeout))
		return READ(napi, gro_flush_timeout);
	return READ_VIA(napi, dev, gro_flush_timeout);
}

/* not_followed takes note of a poll whose time belongs to no followed NAPI. */
static __noinline void not_followed(bool transmits)
{
	struct cpu_state *cpu = this_cpu();

	if (!cpu)
		return;
	cpu->last_at = 0;
	if (transmits)
		cpu->transmit_only++;
}

/* end_suspension takes note of what ended a suspension, and when. */
static __noinline void end_suspension(struct napi_state *state, __u64 now)
{
	struct napi_delays *waits = delays_of(state->slot);

	if (waits)
		record(&waits->suspension, now - state->suspended_at, 1);
	state->suspended_at = 0;
}

static __noinline void count_busy_poll(__u32 packets)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct app_waits *app = bpf_map_lookup_elem(&apps, &tgid);

	if (!app)
		return;
	__sync_fetch_and_add(&app->busy_polls, 1);
	__sync_fetch_and_add(&app->busy_packets, packets);
}

/*
 * loop_of tells who ran a poll. Of what is neither in the softirq nor by an
 * application that the NAPI's state tells of, only the last poll of an
 * application looks like one of the NAPI's thread: then, and where softirqs are
 * not observed, it depends on who runs now, which takes a call.
 *
 * The bit is set for all other polls of an application (__napi_busy_loop and
 * busy_poll_stop in net/core/dev.c), so that there is none where it never was.
 */
static __always_inline enum loop loop_of(struct napi_struct *napi, struct napi_state *state,
					 struct cpu_state *cpu)
{
	__u64 thread = 0;

	if (bpf_core_field_exists(napi->thread))
		thread = (__u64)READ(napi, thread);
	if (unlikely(!softirq_known))
		return thread && bpf_get_current_task() == thread ? LOOP_THREAD : LOOP_SOFTIRQ;
	if (cpu->in_net_rx)
		return LOOP_SOFTIRQ;
	if (unlikely(READ(napi, state) & NAPIF_STATE_IN_BUSY_POLL))
		state->busy_polled = 1;
	if (!thread)
		return LOOP_APPLICATION;
	if (unlikely(state->busy_polled) && bpf_get_current_task() != thread)
		return LOOP_APPLICATION;
	return LOOP_THREAD;
}

/* started_by tells what started a poll, from what happened since the last. */
static __always_inline enum starter started_by(struct napi_state *state, enum loop loop)
{
	if (loop == LOOP_APPLICATION)
		return STARTER_APPLICATION;
	if (state->fired)
		return STARTER_TIMER;
	if (state->again && state->starter == STARTER_TIMER)
		return STARTER_TIMER;
	return STARTER_INTERRUPT;
}

/*
 * time_poll reads the clock where the poll is timed, and says in *measured
 * whether the time since the one before is known. A poll is measured by the
 * clock at its end and at the end of the one before, so that choosing at random
 * times two polls in a row.
 */
static __always_inline __u64 time_poll(struct napi_state *state, struct cpu_state *cpu,
				       bool *measured)
{
	bool next = samples(&state->random);

	*measured = state->timed;
	state->timed = next;
	cpu->timed = next;
	if (!*measured && !next)
		return 0;
	return bpf_ktime_get_ns();
}

/* timed_poll takes note of a poll that ended now, and of the time since the one
 * before where that is known. */
static __always_inline void timed_poll(struct napi_state *state, struct cpu_state *cpu, __u64 now,
				  __u32 packets, enum loop loop)
{
	bool spread;
	__u64 since;

	if (packets == 0 || !state->polled_at)
		return;
	since = waiting_since(state, cpu, loop, now, &spread);
	if (since && now > since)
		ring_wait(state, now - since, packets, spread);
}

/*
 * The tracepoint fires when the driver's poll function has returned, in all of
 * the kernel's loops (__napi_poll, busy_poll_stop and __napi_busy_loop in
 * net/core/dev.c).
 */
TRACEPOINT("napi_poll")
int BPF_PROG(napi_poll, struct napi_struct *napi, int work, int budget)
{
	struct napi_state *state;
	struct napi_counts *seen;
	struct cpu_state *cpu;
	__u64 now, flush, bucket;
	__u32 id, packets, defer, left, index, masked, who;
	enum starter starter;
	enum loop loop;
	bool measured;

	id = READ(napi, napi_id);
	state = id ? followed_napi(id) : NULL;
	if (unlikely(!state)) {
		/* The per-CPU backlog has no ID either, but no device. */
		not_followed(!id && budget && READ(napi, dev));
		return 0;
	}
	seen = counts_of(state);
	if (unlikely(!seen)) {
		count_lost();
		return 0;
	}
	/* netpoll sends with budget 0 and receives nothing. */
	if (unlikely(budget == 0)) {
		seen->netpoll++;
		return 0;
	}

	cpu = this_cpu();
	if (unlikely(!cpu)) {
		count_lost();
		return 0;
	}
	loop = loop_of(napi, state, cpu);
	starter = started_by(state, loop);
	index = loop;
	if (starter == STARTER_TIMER)
		index += LOOP_TIMER;
	who = index;

	packets = work > 0 ? work : 0;
	bucket = index * WORK_BUCKETS;
	if (likely(packets < WORK_BUCKETS - 1)) {
		bucket += packets;
	} else {
		bucket += WORK_BUCKETS - 1;
		seen->excess[index & (LOOP_SLOTS - 1)] += packets - (WORK_BUCKETS - 1);
	}
	/* Keeps the compiler from testing another register than it uses. */
	barrier_var(bucket);
	if (likely(bucket < LOOPS * WORK_BUCKETS))
		seen->work[bucket]++;
	if (unlikely(work >= budget)) {
		barrier_var(index);
		seen->full[index & (LOOP_SLOTS - 1)]++;
	}
	if (unlikely(state->starter != starter)) {
		index = state->starter << 2 | starter;
		barrier_var(index);
		seen->takeovers[index & 15]++;
		state->starter = starter;
	}
	if (loop == LOOP_APPLICATION)
		count_busy_poll(packets);

	now = time_poll(state, cpu, &measured);
	if (now && measured)
		timed_poll(state, cpu, now, packets, loop);
	if (loop == LOOP_SOFTIRQ) {
		if (now && cpu->last_at) {
			seen->softirq_time += now - cpu->last_at;
			seen->softirq_timed++;
		}
		cpu->last_at = now;
	}
	if (unlikely(state->suspended_at && loop != LOOP_APPLICATION)) {
		seen->resumed++;
		end_suspension(state, now ? now : bpf_ktime_get_ns());
	}

	/*
	 * napi_complete_done reloads the count when there was work, and masks
	 * while the count before its decrement was above 0.
	 */
	defer = deferred_irqs(napi);
	flush = flush_timeout(napi);
	left = packets > 0 ? defer : state->defer_left;
	if (work >= budget)
		masked = MASKED_YES;
	else if (loop == LOOP_APPLICATION)
		masked = defer && flush ? MASKED_YES : MASKED_WHILE_BUSY;
	else
		masked = left && flush ? MASKED_YES : MASKED_NO;
	if (unlikely(masked == MASKED_NO && state->masked == MASKED_YES && defer && flush))
		seen->unmasked++;
	state->masked = masked;
	state->again = work >= budget;
	state->fired = 0;
	state->defer_left = READ(napi, defer_hard_irqs_count);
	state->polled_at = now;

	if (bpf_core_field_exists(napi->timer.function) && unlikely(!watchdog))
		watchdog = (__u64)READ(napi, timer.function);
	emit_poll(state, seen, packets, who, now);
	return 0;
}

#endif
