//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0

/*
 * The epoll contexts of all processes, and the sockets that they watch.
 */

#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Contexts that watch a socket: so many per entry, and entries per socket. */
#define WATCHERS 8
#define MAX_ENTRIES 32

char LICENSE[] SEC("license") = "GPL";

enum entry_kind {
	ENTRY_CONTEXT = 1,
	ENTRY_TCP = 2,
	ENTRY_UDP = 3,
	ENTRY_XDP = 4,
	/* Any other socket that a context watches. */
	ENTRY_OTHER = 5,
};

struct context_entry {
	__u32 kind;
	__s32 pid;
	__u32 fd;
	/* Of a context: the NAPI that it polls. Of a socket: the one that it
	 * receives from. 0 where there is none. */
	__u32 napi_id;
	char comm[16];
	/* When the process started, since boot. */
	__u64 started;
	/* The address of the context, or of the socket. */
	__u64 address;
	/* Of a socket: the contexts that watch it. */
	__u64 watchers[WATCHERS];
	__u32 busy_poll_usecs;
	__u16 busy_poll_budget;
	__u8 prefer_busy_poll;
	/* The socket is watched by more contexts than the entries tell. */
	__u8 more_watchers;
};

/* Makes the type known to the generator, which keeps no unused one. */
const struct context_entry *unused_context_entry __attribute__((unused));

/* Written by user space. */
/* Also list sockets that no context watches, or that no NAPI has fed yet. */
volatile __u32 all_sockets;
/* List only this descriptor of this process, where one is named. */
volatile __u32 only_pid;
volatile __u32 only_fd;
/* Lower values of sk_napi_id are CPU numbers of loopback traffic
 * (MIN_NAPI_ID in include/net/busy_poll.h). */
volatile __u32 min_napi_id;
/* Written by the program where the sockets of this kernel have a budget. */
volatile __u32 has_budget;

static __always_inline bool is_eventpoll(struct file *file)
{
	static const char want[] = "[eventpoll]";
	char name[sizeof(want)] = {};
	__u32 i;

	if (bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(file, f_path.dentry, d_name.name)) != sizeof(want))
		return false;
	for (i = 0; i < sizeof(want) - 1; i++)
		if (name[i] != want[i])
			return false;
	return true;
}

static __always_inline __u32 valid_napi(__u32 id)
{
	return id >= min_napi_id ? id : 0;
}

static __always_inline void write_context(struct seq_file *seq, struct context_entry *entry,
					  struct file *file)
{
	struct eventpoll *ep = file->private_data;

	entry->kind = ENTRY_CONTEXT;
	entry->address = (__u64)ep;
	if (bpf_core_field_exists(ep->napi_id))
		entry->napi_id = valid_napi(BPF_CORE_READ(ep, napi_id));
	if (bpf_core_field_exists(ep->busy_poll_usecs)) {
		entry->busy_poll_usecs = BPF_CORE_READ(ep, busy_poll_usecs);
		entry->busy_poll_budget = BPF_CORE_READ(ep, busy_poll_budget);
		entry->prefer_busy_poll = BPF_CORE_READ(ep, prefer_busy_poll);
	}
	bpf_seq_write(seq, entry, sizeof(*entry));
}

static __always_inline __u32 socket_kind(struct sock *sk)
{
	__u16 family = BPF_CORE_READ(sk, __sk_common.skc_family);
	__u16 protocol = BPF_CORE_READ(sk, sk_protocol);

	if (family == AF_XDP)
		return ENTRY_XDP;
	if (family != AF_INET && family != AF_INET6)
		return ENTRY_OTHER;
	if (protocol == IPPROTO_TCP)
		return ENTRY_TCP;
	return protocol == IPPROTO_UDP ? ENTRY_UDP : ENTRY_OTHER;
}

/* take_watchers moves the next contexts of a file into an entry, and returns
 * what is left. */
static __always_inline struct hlist_node *take_watchers(struct context_entry *entry,
							struct hlist_node *node)
{
	struct epitem *item;
	__u32 i;

	for (i = 0; i < WATCHERS; i++) {
		entry->watchers[i] = 0;
		if (!node)
			continue;
		item = (void *)((__u64)node - bpf_core_field_offset(struct epitem, fllink));
		entry->watchers[i] = (__u64)BPF_CORE_READ(item, ep);
		node = BPF_CORE_READ(node, next);
	}
	return node;
}

static __always_inline void write_socket(struct seq_file *seq, struct context_entry *entry,
					 struct file *file, struct sock *sk)
{
	struct hlist_head *watched = NULL;
	struct hlist_node *node = NULL;
	__u32 i;

	entry->napi_id = valid_napi(BPF_CORE_READ(sk, sk_napi_id));
	if (bpf_core_field_exists(file->f_ep))
		watched = BPF_CORE_READ(file, f_ep);
	if (watched && entry->napi_id)
		node = BPF_CORE_READ(watched, first);
	entry->kind = socket_kind(sk);
	if (!node && (!all_sockets || entry->kind == ENTRY_OTHER))
		return;
	entry->address = (__u64)sk;
	entry->busy_poll_usecs = BPF_CORE_READ(sk, sk_ll_usec);
	if (bpf_core_field_exists(sk->sk_prefer_busy_poll))
		entry->prefer_busy_poll = BPF_CORE_READ(sk, sk_prefer_busy_poll);
	if (bpf_core_field_exists(sk->sk_busy_poll_budget)) {
		entry->busy_poll_budget = BPF_CORE_READ(sk, sk_busy_poll_budget);
		has_budget = 1;
	}
	for (i = 0; i < MAX_ENTRIES; i++) {
		node = take_watchers(entry, node);
		entry->more_watchers = i == MAX_ENTRIES - 1 && node;
		bpf_seq_write(seq, entry, sizeof(*entry));
		if (!node)
			break;
	}
}

SEC("iter/task_file")
int contexts(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct context_entry entry = {};
	struct socket *socket;

	if (!task || !file)
		return 0;
	if (only_pid && (task->tgid != only_pid || ctx->fd != only_fd))
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket && !is_eventpoll(file))
		return 0;
	entry.pid = task->tgid;
	entry.fd = ctx->fd;
	entry.started = BPF_CORE_READ(task, group_leader, start_boottime);
	bpf_probe_read_kernel(entry.comm, sizeof(entry.comm), BPF_CORE_READ(task, group_leader)->comm);
	if (socket)
		write_socket(ctx->meta->seq, &entry, file, BPF_CORE_READ(socket, sk));
	else
		write_context(ctx->meta->seq, &entry, file);
	return 0;
}
