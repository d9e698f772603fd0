/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The kernel types that the programs read, with only the members that they
 * read. Offsets here mean nothing: every access is relocated against the BTF of
 * the running kernel, so a member may be absent there and must then be guarded
 * with bpf_core_field_exists.
 */
#ifndef AUTOTUNE_TYPES_H
#define AUTOTUNE_TYPES_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#define true 1
#define false 0

#define NULL ((void *)0)

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum {
	BPF_RB_NO_WAKEUP = 1 << 0,
};

enum {
	BPF_F_MMAPABLE = 1 << 10,
};

/* include/linux/interrupt.h */
#define NET_RX_SOFTIRQ 3

/* include/linux/sched.h */
#define PF_KTHREAD 0x00200000

/* include/linux/socket.h */
#define MSG_PEEK 0x2
#define MSG_ERRQUEUE 0x2000

/* include/net/tcp_states.h */
#define TCP_LISTEN 10

/* include/linux/socket.h */
#define AF_INET 2
#define AF_INET6 10
#define AF_XDP 44

/* include/uapi/linux/in.h */
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct hlist_node {
	struct hlist_node *next;
};

struct hlist_head {
	struct hlist_node *first;
};

/* include/linux/hrtimer_types.h */
struct hrtimer {
	__s64 _softexpires;
	void *function;
};

/* include/linux/netdevice.h: bits of napi_struct.state, the same since 2.6.24 and
 * 4.12. */
#define NAPIF_STATE_SCHED 1
#define NAPIF_STATE_IN_BUSY_POLL (1 << 6)

/* include/linux/netdevice.h; the per-device pair moved into the NAPI in 6.13. */
struct net_device {
	unsigned long gro_flush_timeout;
	__u32 napi_defer_hard_irqs;
};

struct task_struct;

struct napi_struct {
	unsigned long state;
	__u32 defer_hard_irqs_count;
	struct net_device *dev;
	struct hrtimer timer;
	struct task_struct *thread;
	unsigned long gro_flush_timeout;
	unsigned long irq_suspend_timeout;
	__u32 defer_hard_irqs;
	__u32 napi_id;
};

/* include/linux/sched/signal.h: of the threads that have ended. */
struct signal_struct {
	__u64 sum_sched_runtime;
};

/* include/linux/sched.h */
struct sched_entity {
	__u64 sum_exec_runtime;
};

struct task_struct {
	__u32 flags;
	__s32 pid;
	__s32 tgid;
	/* CLOCK_BOOTTIME, in ns. */
	__u64 start_boottime;
	struct task_struct *group_leader;
	struct sched_entity se;
	struct signal_struct *signal;
	char comm[16];
};

/*
 * arch/.../include/asm/ptrace.h: where the third argument of a system call is
 * until it returns.
 */
struct pt_regs;

struct pt_regs___x86 {
	unsigned long dx;
};

struct pt_regs___arm64 {
	__u64 regs[31];
};

/* include/linux/skbuff.h: the time stamp is something else of the driver's while
 * this flag is set. */
#define SKBTX_HW_TSTAMP_NETDEV (1 << 5)

struct sk_buff;

struct sk_buff_head {
	struct sk_buff *prev;
	__u32 qlen;
};

/* include/net/sock.h */
struct sock_common {
	__be32 skc_daddr;
	__u32 skc_portpair;
	__u16 skc_family;
	volatile __u8 skc_state;
};

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u32 sk_napi_id;
	__u32 sk_ll_usec;
	/* These two came in 5.11. */
	__u8 sk_prefer_busy_poll;
	__u16 sk_busy_poll_budget;
	__u16 sk_protocol;
};

/* include/linux/skbuff.h */
struct sk_buff {
	struct sock *sk;
	__u32 len;
	__u16 transport_header;
	__u32 end;
	unsigned char *head;
	unsigned char *data;
};

struct skb_shared_hwtstamps {
	__s64 hwtstamp;
};

/* At the end of a packet's first buffer. */
struct skb_shared_info {
	__u8 tx_flags;
	struct skb_shared_hwtstamps hwtstamps;
};

/* include/linux/net.h */
struct msghdr;

struct socket {
	struct sock *sk;
};

/* include/linux/dcache.h, include/linux/fs.h */
struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct qstr d_name;
};

struct path {
	struct dentry *dentry;
};

struct file {
	struct path f_path;
	void *private_data;
	struct hlist_head *f_ep;
};

/* fs/eventpoll.c; the busy-poll parameters of a context came in 6.9. */
struct eventpoll {
	__u32 napi_id;
	__u32 busy_poll_usecs;
	__u16 busy_poll_budget;
	bool prefer_busy_poll;
};

struct epitem {
	struct eventpoll *ep;
	struct hlist_node fllink;
};

/* include/linux/bpf.h */
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id;
	__u64 seq_num;
};

/* kernel/bpf/task_iter.c */
struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
};

#pragma clang attribute pop

/* kernel/trace/trace_syscalls.c: the layout of sys_exit is part of the ABI. */
struct syscall_exit {
	__u64 common;
	__s64 id;
	__s64 ret;
};

#endif
