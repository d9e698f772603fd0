//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0

/*
 * The epoll contexts of all processes, and the sockets that they watch.
 */

#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* Contexts that one socket is listed under at most. */
#define MAX_WATCHERS 8

char LICENSE[] SEC("license") = "GPL";

enum entry_kind {
	ENTRY_CONTEXT = 1,
	ENTRY_SOCKET = 2,
};

struct context_entry {
	__u32 kind;
	__s32 pid;
	__u32 fd;
	/* Of a context: the NAPI that it polls. Of a socket: the one that it
	 * receives from. */
	__u32 napi_id;
	char comm[16];
	/* The address of the context; of a socket, those that watch it. */
	__u64 watchers[MAX_WATCHERS];
	__u32 busy_poll_usecs;
	__u16 busy_poll_budget;
	__u8 prefer_busy_poll;
	/* The socket is watched by more contexts than fit. */
	__u8 more_watchers;
};

/* Makes the type known to the generator, which keeps no unused one. */
const struct context_entry *unused_context_entry __attribute__((unused));

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

static __always_inline bool describe_context(struct context_entry *entry, struct file *file)
{
	struct eventpoll *ep = file->private_data;

	entry->kind = ENTRY_CONTEXT;
	entry->watchers[0] = (__u64)ep;
	if (bpf_core_field_exists(ep->napi_id))
		entry->napi_id = BPF_CORE_READ(ep, napi_id);
	if (bpf_core_field_exists(ep->busy_poll_usecs)) {
		entry->busy_poll_usecs = BPF_CORE_READ(ep, busy_poll_usecs);
		entry->busy_poll_budget = BPF_CORE_READ(ep, busy_poll_budget);
		entry->prefer_busy_poll = BPF_CORE_READ(ep, prefer_busy_poll);
	}
	return true;
}

static __always_inline bool describe_socket(struct context_entry *entry, struct file *file, struct socket *socket)
{
	struct hlist_node *node;
	struct epitem *item;
	__u16 family;
	__u32 i;

	if (!bpf_core_field_exists(file->f_ep) || !file->f_ep)
		return false;
	family = BPF_CORE_READ(socket, sk, __sk_common.skc_family);
	if (family != AF_INET && family != AF_INET6)
		return false;
	entry->kind = ENTRY_SOCKET;
	entry->napi_id = BPF_CORE_READ(socket, sk, sk_napi_id);
	if (!entry->napi_id)
		return false;
	node = BPF_CORE_READ(file, f_ep, first);
	for (i = 0; i < MAX_WATCHERS && node; i++) {
		item = (void *)((__u64)node - bpf_core_field_offset(struct epitem, fllink));
		entry->watchers[i] = (__u64)BPF_CORE_READ(item, ep);
		node = BPF_CORE_READ(node, next);
	}
	entry->more_watchers = node != NULL;
	return i > 0;
}

SEC("iter/task_file")
int contexts(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct context_entry entry = {};
	struct socket *socket;
	bool known;

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (socket)
		known = describe_socket(&entry, file, socket);
	else
		known = is_eventpoll(file) && describe_context(&entry, file);
	if (!known)
		return 0;
	entry.pid = task->tgid;
	entry.fd = ctx->fd;
	bpf_probe_read_kernel(entry.comm, sizeof(entry.comm), task->comm);
	bpf_seq_write(ctx->meta->seq, &entry, sizeof(entry));
	return 0;
}
