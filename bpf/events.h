/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Single events, where a run asks for them.
 *
 * Only the objects that are compiled with EVENTS have any of this: a poll of a
 * run without events does not even ask whether it has to tell of itself.
 */
#ifndef AUTOTUNE_EVENTS_H
#define AUTOTUNE_EVENTS_H

#ifdef EVENTS

enum event_kind {
	EVENT_POLL,
	EVENT_WAIT,
	EVENT_REQUEST,
};

/* What all kinds begin with. */
struct event {
	__u32 kind;
	/* The NAPI's; of a wait the process ID. */
	__u32 slot;
	/* When it ended, by bpf_ktime_get_ns, as are all times here. */
	__u64 at;
};

struct poll_event {
	struct event event;
	__u32 packets;
	/* The number of polls of this NAPI on this CPU, this one included: it
	 * tells whether a reading of the counts has it. */
	__u32 sequence;
	__u16 cpu;
	/* As the index of work. */
	__u8 loop;
	__u8 unused[5];
};

struct wait_event {
	struct event event;
	__u32 returned;
	__u32 unused;
};

struct request_event {
	struct event event;
	__u64 ready;
	__u64 receive;
	/* 0 where the application read again before it sent. */
	__u64 send;
};

/* User space sets the size. Nobody is woken: it looks by itself. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

/* Keep the types in the object's BTF. */
const struct poll_event *unused_poll_event __attribute__((unused));
const struct wait_event *unused_wait_event __attribute__((unused));
const struct request_event *unused_request_event __attribute__((unused));

/* Whether events are wanted now. */
volatile __u32 events_wanted;
/* Those that found no room. */
volatile __u64 events_lost;

static __always_inline void *reserve_event(__u64 size)
{
	void *e = bpf_ringbuf_reserve(&ring, size, 0);

	if (!e)
		__sync_fetch_and_add(&events_lost, 1);
	return e;
}

static __always_inline void emit_poll(struct napi_state *state, struct napi_counts *seen,
				      __u32 packets, __u32 loop, __u64 now)
{
	struct poll_event *e;

	seen->sequence++;
	if (likely(!events_wanted))
		return;
	e = reserve_event(sizeof(*e));
	if (!e)
		return;
	e->event.kind = EVENT_POLL;
	e->event.slot = state->slot;
	e->event.at = now ? now : bpf_ktime_get_ns();
	e->packets = packets;
	e->sequence = seen->sequence;
	e->cpu = bpf_get_smp_processor_id();
	e->loop = loop;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline void emit_wait(__u32 tgid, __u32 returned)
{
	struct wait_event *e;

	if (likely(!events_wanted))
		return;
	e = reserve_event(sizeof(*e));
	if (!e)
		return;
	e->event.kind = EVENT_WAIT;
	e->event.slot = tgid;
	e->event.at = bpf_ktime_get_ns();
	e->returned = returned;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline void emit_request(struct socket_state *socket, __u64 now, bool sent)
{
	struct request_event *e;

	if (likely(!events_wanted))
		return;
	e = reserve_event(sizeof(*e));
	if (!e)
		return;
	e->event.kind = EVENT_REQUEST;
	e->event.slot = socket->slot;
	e->event.at = now;
	e->ready = socket->requested_at;
	e->receive = socket->read_at;
	e->send = sent ? now : 0;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

static __always_inline void note_request(struct socket_state *socket)
{
	socket->requested_at = socket->ready_at;
}

#else

#define emit_poll(state, seen, packets, loop, now) ((void)(loop))
#define emit_wait(tgid, returned) ((void)0)
#define emit_request(socket, now, sent) ((void)0)
#define note_request(socket) ((void)0)

#endif
#endif
