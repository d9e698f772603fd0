/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Requests on their way through sockets.
 */
#ifndef AUTOTUNE_SOCKETS_H
#define AUTOTUNE_SOCKETS_H

/* The addresses and ports of a socket's two ends, as far as 64 bits hold them. */
static __always_inline __u64 socket_identity(const struct sock *sk)
{
	return (__u64)READ(sk, __sk_common.skc_daddr) << 32 | READ(sk, __sk_common.skc_portpair);
}

static __always_inline bool selects(__u32 salt, __u64 identity)
{
	__u64 h = identity ^ ((__u64)salt << 32 | salt);

	h *= 0x9e3779b97f4a7c15ULL;
	h ^= h >> 29;
	h *= 0xbf58476d1ce4e5b9ULL;
	return !((h >> 32) & sample_mask);
}

/* followed returns the state of a socket that data became ready on earlier. */
static __always_inline struct socket_state *followed(const struct sock *sk)
{
	struct socket_state *state;
	__u64 key = (__u64)sk, identity;

	if (!READ(sk, sk_napi_id))
		return NULL;
	identity = socket_identity(sk);
	if (sample_mask && !selects(sample_salt, identity) && !selects(sample_salt_before, identity))
		return NULL;
	state = bpf_map_lookup_elem(&sockets, &key);
	if (!state || state->identity != identity)
		return NULL;
	if (state->salt != sample_salt && state->salt != sample_salt_before)
		return NULL;
	return state;
}

/* data_ready takes note of data that a socket can be read for from now on, and
 * where asked for of the time stamp of the packet that it came with. */
static __always_inline int data_ready(const struct sock *sk, bool stamped)
{
	struct socket_state *socket, fresh = {};
	struct napi_state *napi;
	struct cpu_state *cpu;
	enum loop loop;
	__u64 key = (__u64)sk, identity, now, since, gap;
	__u32 id, salt, in_use;
	bool spread;

	id = READ(sk, sk_napi_id);
	if (!id)
		return 0;
	identity = socket_identity(sk);
	salt = sample_salt;
	if (sample_mask && !selects(salt, identity))
		return 0;
	if (READ(sk, __sk_common.skc_state) == TCP_LISTEN)
		return 0;
	napi = followed_napi(id);
	if (!napi)
		return 0;

	socket = bpf_map_lookup_elem(&sockets, &key);
	if (socket && (socket->identity != identity || socket->slot != napi->slot ||
		       (socket->salt != salt && socket->salt != sample_salt_before))) {
		socket->identity = identity;
		socket->ready_at = 0;
		socket->read_at = 0;
		socket->slot = napi->slot;
	}
	if (socket) {
		socket->salt = salt;
		if (socket->ready_at)
			return 0;
	}

	/* Its wait before this poll would not be known. */
	if (poll_mask && !napi->polled_at)
		return 0;

	now = bpf_ktime_get_ns();
	cpu = this_cpu();
	if (!cpu)
		return 0;
	loop = LOOP_APPLICATION;
	if (napi->threaded)
		loop = LOOP_THREAD;
	if (cpu->in_net_rx)
		loop = LOOP_SOFTIRQ;
	gap = 0;
	if (napi->polled_at) {
		since = waiting_since(napi, cpu, loop, now, &spread);
		if (since && now > since)
			gap = now - since;
		/*
		 * Where in the gap the packet came is not known; drawing it at
		 * random gives the same distribution as packets that do come at
		 * any time.
		 */
		if (spread)
			gap = part_of(gap, draw(&cpu->random));
	}
	in_use = stamped ? clocks_in_use : 0;
	if (unlikely(in_use))
		gap = stamped_wait(sk, napi->slot * 2 + in_use - 1, now, gap);

	if (socket) {
		socket->ready_ring = gap;
		socket->ready_at = now;
		return 0;
	}
	fresh.identity = identity;
	fresh.ready_at = now;
	fresh.ready_ring = gap;
	fresh.salt = salt;
	fresh.slot = napi->slot;
	if (bpf_map_update_elem(&sockets, &key, &fresh, BPF_ANY))
		count_lost();
	return 0;
}

/* received takes note of what an application has read: ret bytes, or an error. */
static __always_inline int received(const struct sock *sk, int ret, int flags)
{
	struct socket_state *socket;
	struct napi_delays *waits;
	__u64 now, wait;

	if (ret < 0 || flags & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	socket = followed(sk);
	if (!socket || !socket->ready_at)
		return 0;
	if (ret == 0) {
		/* The end of the stream: what was ready held no request. */
		socket->ready_at = 0;
		return 0;
	}
	remember_app();
	waits = delays_of(socket->slot);
	if (!waits) {
		count_lost();
		return 0;
	}
	now = bpf_ktime_get_ns();
	/* The request before this one was never answered. */
	if (socket->read_at) {
		record(&waits->delay, socket->read_delay, 1);
		emit_request(socket, now, false);
	}
	wait = now - socket->ready_at;
	record(&waits->socket_wait, wait, 1);
	socket->read_delay = socket->ready_ring + wait;
	socket->read_at = now;
	note_request(socket);
	socket->ready_at = 0;
	return 0;
}

/* sent takes note of what an application has sent: ret bytes, or an error. */
static __always_inline int sent(const struct sock *sk, int ret)
{
	struct socket_state *socket;
	struct napi_delays *waits;
	__u64 now, service;

	if (ret <= 0)
		return 0;
	socket = followed(sk);
	if (!socket || !socket->read_at)
		return 0;
	waits = delays_of(socket->slot);
	if (!waits) {
		count_lost();
		return 0;
	}
	now = bpf_ktime_get_ns();
	service = now - socket->read_at;
	record(&waits->service, service, 1);
	record(&waits->delay, socket->read_delay + service, 1);
	emit_request(socket, now, true);
	socket->read_at = 0;
	return 0;
}

/* The tracepoints of sockets came in 6.3. */

TRACEPOINT("sk_data_ready")
int BPF_PROG(sk_data_ready, const struct sock *sk)
{
	return data_ready(sk, true);
}

TRACEPOINT("sock_recv_length")
int BPF_PROG(sock_recv_length, struct sock *sk, int ret, int flags)
{
	return received(sk, ret, flags);
}

TRACEPOINT("sock_send_length")
int BPF_PROG(sock_send_length, struct sock *sk, int ret, int flags)
{
	return sent(sk, ret);
}

#ifndef RAW_TRACEPOINTS
/*
 * Before, the functions that the tracepoints are in: sock_def_readable is what
 * every socket of these two families has for sk_data_ready unless something in
 * the kernel reads it, and sock_recvmsg and sock_sendmsg call the others.
 */

SEC("fentry/sock_def_readable")
int BPF_PROG(sock_def_readable, struct sock *sk)
{
	return data_ready(sk, false);
}

SEC("fexit/inet_recvmsg")
int BPF_PROG(inet_recvmsg, struct socket *sock, struct msghdr *msg, unsigned long size, int flags,
	     int ret)
{
	return received(sock->sk, ret, flags);
}

SEC("fexit/inet6_recvmsg")
int BPF_PROG(inet6_recvmsg, struct socket *sock, struct msghdr *msg, unsigned long size, int flags,
	     int ret)
{
	return received(sock->sk, ret, flags);
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(inet_sendmsg, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return sent(sock->sk, ret);
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(inet6_sendmsg, struct socket *sock, struct msghdr *msg, unsigned long size, int ret)
{
	return sent(sock->sk, ret);
}
#endif

/*
 * Where functions cannot be traced either, tracepoints of TCP: there are none of
 * UDP for this.
 */

/* payload returns how many bytes follow a TCP header that lies at an address,
 * of those that begin there. */
static __always_inline __s32 payload(const unsigned char *header, __u32 bytes)
{
	__u8 offset = 0;

	/* The data offset, in words of 4 bytes, is the high half of byte 12. */
	if (bpf_probe_read_kernel(&offset, sizeof(offset), header + 12))
		return 0;
	return (__s32)bytes - (offset >> 4) * 4;
}

/* At the beginning of tcp_rcv_established: the data begins with the header. */
TRACEPOINT("tcp_probe")
int BPF_PROG(tcp_probe, struct sock *sk, struct sk_buff *skb)
{
	if (payload(READ(skb, data), READ(skb, len)) <= 0)
		return 0;
	return data_ready(sk, false);
}

/* Whenever data has been copied to an application, even if it only peeks. */
TRACEPOINT("tcp_rcv_space_adjust")
int BPF_PROG(tcp_rcv_space_adjust, struct sock *sk)
{
	return received(sk, 1, 0);
}

/*
 * Whenever a packet goes to a device: most answers do within the call that sends
 * them. What TCP sends on its own account has no payload.
 */
TRACEPOINT("net_dev_queue")
int BPF_PROG(net_dev_queue, struct sk_buff *skb)
{
	const struct sock *sk = READ(skb, sk);
	const unsigned char *header;
	struct socket_state *socket;

	if (!sk || READ(sk, sk_protocol) != IPPROTO_TCP)
		return 0;
	socket = followed(sk);
	if (!socket || !socket->read_at)
		return 0;
	header = READ(skb, head) + READ(skb, transport_header);
	if (payload(header, READ(skb, len) - (header - READ(skb, data))) <= 0)
		return 0;
	return sent(sk, 1);
}

#endif
