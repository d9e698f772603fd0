/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * What the receive programs keep: the maps that user space reads, and what they
 * remember between two events.
 */
#ifndef AUTOTUNE_STATE_H
#define AUTOTUNE_STATE_H

#define WORK_BUCKETS 66
/* A power of two of at least LOOPS. */
#define LOOP_SLOTS 8
#define LOOPS 5
#define PROBES 4
#define NO_PLACE (-1)
/* What a random number is below. */
#define PARTS 65536

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Who ran a poll; LOOP_TIMER is added to the first two where the NAPI's timer
 * started it. */
enum loop {
	LOOP_SOFTIRQ,
	LOOP_THREAD,
	LOOP_APPLICATION,
	LOOP_TIMER = 3,
};

/* What started a poll. */
enum starter {
	STARTER_NONE,
	STARTER_INTERRUPT,
	STARTER_TIMER,
	STARTER_APPLICATION,
};

/* Whether the device interrupt stayed masked after a poll. */
enum masked {
	MASKED_NO,
	MASKED_YES,
	/*
	 * An application polled and nothing defers interrupts: they stay masked
	 * only as long as it goes on polling.
	 */
	MASKED_WHILE_BUSY,
};

/*
 * What one CPU saw of one NAPI. Only that CPU writes it.
 *
 * Code and data of a poll are no longer in the first caches when the next one
 * comes, so that it costs what it touches. Most polls add to one element of
 * work, from which user space works out all counts.
 */
struct napi_counts {
	/* Polls by loop and packets. 32 bits halve what is copied per window;
	 * user space subtracts modulo 2^32. */
	__u32 work[LOOPS * WORK_BUCKETS];
	/* By loop: polls that used up their budget, and the packets of polls in
	 * the last bucket that were more than it says. */
	__u32 full[LOOP_SLOTS];
	__u32 excess[LOOP_SLOTS];
	/* Time of softirq polls, and of how many of them. */
	__u64 softirq_time;
	__u64 softirq_timed;
	__u64 arms;
	__u64 fires;
	/* By starter of the poll before, times 4, and of this one. */
	__u64 takeovers[16];
	__u64 netpoll;
	/* The defer count ran out and the interrupt was enabled again. */
	__u64 unmasked;
	/* Suspensions that began, and how they ended. */
	__u64 suspended;
	__u64 resumed;
	__u64 expired;
	__u64 flushed;
#ifdef EVENTS
	/* All polls, modulo 2^32. */
	__u64 sequence;
	__u64 unused[8];
#else
	__u64 unused[9];
#endif
};

/* Modulo 2^32 as well. */
struct histogram {
	__u32 counts[HIST_BUCKETS];
};

/* The waits of one NAPI. Every CPU writes them, atomically but for ring_wait. */
struct napi_delays {
	struct histogram ring_wait;
	struct histogram socket_wait;
	struct histogram service;
	struct histogram delay;
	struct histogram suspension;
	/* The ring wait of what became ready on followed sockets, by the time
	 * stamp of the device; how often there was none, and how often it was not
	 * believed. Only while the device has a clock. */
	struct histogram stamped_wait;
	__u64 unstamped;
	__u64 refused;
	__u64 unused[6];
};

/*
 * What CLOCK_MONOTONIC shows when the clock of a device does: monotonic at phc,
 * and from there on rate / 2^32 more or less per nanosecond.
 */
struct device_clock {
	__u64 phc;
	__u64 monotonic;
	__s64 rate;
	/* How far this may be wrong, and until when it is to be used. */
	__u64 error;
	__u64 valid_until;
};

/*
 * What is known of a NAPI of the run between two polls. Elements of this and
 * the next two types are written by different CPUs at a time: they are of whole
 * cache lines, and in arrays that begin with one.
 */
struct napi_state {
	/* 0 where no NAPI is. */
	__u32 id;
	/* Index into delays, and times cpu_count into counts. */
	__u32 slot;
	/* Which of the threads, if it has one. */
	__u32 thread;
	__u32 defer_left;
	/* When the last poll ended (0: not timed), and since when the interrupt
	 * is suspended (0: it is not). */
	__u64 polled_at;
	__u64 suspended_at;
	__u8 threaded;
	__u8 masked;
	__u8 starter;
	/* The timer has scheduled the NAPI since the last poll. */
	__u8 fired;
	/* The last poll was full: the NAPI stayed scheduled. */
	__u8 again;
	/* The timer runs with the suspend timeout. */
	__u8 safety;
	/* The next poll is timed. */
	__u8 timed;
	/* An application has polled it since it is followed. */
	__u8 busy_polled;
	__u64 random;
	__u64 unused[2];
};

/* A NAPI thread, which any CPU may wake. */
struct thread_state {
	/* When it was woken last. */
	__u64 woken_at;
	__u64 unused[7];
};

/* What one CPU did. Only that CPU writes it. */
struct cpu_state {
	__u32 in_net_rx;
	/* The next softirq raise is timed. */
	__u32 timed;
	/* When the last poll of the softirq now running ended; 0: not timed. */
	__u64 last_at;
	/* When the softirq now running was raised. */
	__u64 started_at;
	__u64 random;
	__u64 raised_at;
	/* When the softirq began; hard interrupts in it move this forward. */
	__u64 entered_at;
	__u64 net_rx;
	/* The part of it, and of irq_time, that no task's time includes. */
	__u64 net_rx_idle;
	__u64 irq_at;
	__u64 irqs;
	__u64 irqs_timed;
	__u64 irq_time;
	__u64 irq_time_idle;
	__u64 transmit_only;
	__u32 idle;
	/* Process ID of the CPU's softirq thread, by user space. */
	__u32 ksoftirqd;
};

/* One request on its way through a socket. */
struct socket_state {
	/* Tells a socket from an earlier one at the same address. */
	__u64 identity;
	/* When data became ready first since the last read; 0 when none is. */
	__u64 ready_at;
	/* When the application read and has not sent since; 0 otherwise. */
	__u64 read_at;
	/* Ring wait of the request that is ready, and ring and socket wait of
	 * the one that was read. */
	__u64 ready_ring;
	__u64 read_delay;
	__u32 salt;
	__u32 slot;
#ifdef EVENTS
	/* When the request that was read was ready. */
	__u64 requested_at;
#endif
};

struct app_waits {
	__u64 events[WORK_BUCKETS];
	/* Events in all returns, and returns with as many as there was room for. */
	__u64 returned;
	__u64 full;
	__u64 busy_polls;
	__u64 busy_packets;
	/* When the process started (CLOCK_BOOTTIME), and the CPU time of those of
	 * its threads that have ended. */
	__u64 started;
	__u64 ended_time;
	/* The process has ended: ended_time is all that it took. */
	__u32 ended;
	__u32 unused;
	char comm[16];
};

/*
 * User space sets the sizes that depend on the host before loading. An array
 * that could be mapped into a process begins with a cache line.
 */

/*
 * A NAPI is found at one of PROBES places from the low bits of its ID on:
 * looking it up in a hash map would take as long as half of all else that a poll
 * does.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct napi_state);
} napis SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct napi_counts);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct napi_delays);
} delays SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

/* By slot, two of each: user space writes those that are not in use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 128);
	__type(key, __u32);
	__type(value, struct device_clock);
} clocks SEC(".maps");

/* NAPI threads, placed by process ID as NAPIs by theirs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} thread_pids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct thread_state);
} threads SEC(".maps");

/* Evicting the oldest only forgets a request that was being followed. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct socket_state);
} sockets SEC(".maps");

/* Of more processes than fit, those that have received last are known. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct app_waits);
} apps SEC(".maps");

/* What a process starts with: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct app_waits);
} no_waits SEC(".maps");

/*
 * Written by user space. All are in one cache line: the first two would be in
 * another if they were constants.
 */
volatile __u32 cpu_count;
/* max_entries of napis and threads, a power of two, minus 1. */
volatile __u32 place_mask;

/* Which sockets are followed: those whose hash with either salt is 0 under the
 * mask. The earlier salt lets requests end that began in the last window. */
volatile __u32 sample_mask;
volatile __u32 sample_salt;
volatile __u32 sample_salt_before;
/* Whether softirq_entry and softirq_exit are attached. */
volatile __u32 softirq_known;
/* Which of each two clocks is in use, from 1 on; 0: no device has one. */
volatile __u32 clocks_in_use;

/* Polls are timed unless a random number has one of these bits. */
volatile __u32 poll_mask;
/* Whether the kernel keeps the time of interrupts out of that of tasks. */
volatile __u32 irq_time_apart;

/* The function of NAPI timers, as the first poll of the run shows it. */
volatile __u64 watchdog;
/* Updates that failed. */
volatile __u64 lost;

static __always_inline void count_lost(void)
{
	__sync_fetch_and_add(&lost, 1);
}

static __always_inline void record(struct histogram *hist, __s64 ns, __u64 n)
{
	__u64 bucket = hist_bucket(ns);

	/* The verifier of Linux 6.1 does not see what the compiler does. */
	barrier_var(bucket);
	if (bucket < HIST_BUCKETS)
		__sync_fetch_and_add(&hist->counts[bucket], (__u32)n);
}

/* add_value is for a histogram that one CPU at a time writes. */
static __always_inline void add_value(struct histogram *hist, __s64 ns, __u32 n)
{
	__u64 bucket = hist_bucket(ns);

	barrier_var(bucket);
	if (bucket < HIST_BUCKETS)
		hist->counts[bucket] += n;
}

static __always_inline struct cpu_state *this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline struct napi_counts *counts_of(struct napi_state *state)
{
	__u32 index = state->slot * cpu_count + bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&counts, &index);
}

static __always_inline struct napi_delays *delays_of(__u32 slot)
{
	return bpf_map_lookup_elem(&delays, &slot);
}

/*
 * other_place returns the place of a NAPI that is not at its first; NO_PLACE
 * where it has none. A function of its own keeps rare code out of the way of the
 * rest.
 */
__attribute__((noinline)) int other_place(__u32 id)
{
	struct napi_state *state;
	__u32 i, index;

	for (i = 1; i < PROBES; i++) {
		index = (id + i) & place_mask;
		state = bpf_map_lookup_elem(&napis, &index);
		if (state && state->id == id)
			return index;
	}
	return NO_PLACE;
}

/* followed_napi returns the state of a NAPI of the run; NULL of another. */
static __always_inline struct napi_state *followed_napi(__u32 id)
{
	__u32 index = id & place_mask;
	struct napi_state *state = bpf_map_lookup_elem(&napis, &index);

	if (likely(state && state->id == id))
		return state;
	index = other_place(id);
	return bpf_map_lookup_elem(&napis, &index);
}

/* draw returns a random number below PARTS. */
static __always_inline __u32 draw(__u64 *random)
{
	__u64 next = *random * 6364136223846793005ULL + 1442695040888963407ULL;

	*random = next;
	return next >> 48;
}

/* part_of returns at parts of PARTS of a duration below 3 days. */
static __always_inline __u64 part_of(__u64 ns, __u32 at)
{
	return (ns * at) >> 16;
}

/* samples draws whether to time what comes next. */
static __always_inline bool samples(__u64 *random)
{
	return !poll_mask || !(draw(random) & poll_mask);
}

/*
 * beyond_tasks tells whether the time of an interrupt that now begins is in no
 * task's CPU time: it interrupts the idle task, or is accounted apart. What
 * ksoftirqd runs is always its own (irqtime_account_irq in
 * kernel/sched/cputime.c).
 */
static __always_inline bool beyond_tasks(struct cpu_state *cpu)
{
	__u32 pid = bpf_get_current_pid_tgid();

	return irq_time_apart ? pid != cpu->ksoftirqd : pid == 0;
}

#endif
