//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0

/*
 * Programs that only tests and benchmarks load.
 */

#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "hist.h"

char LICENSE[] SEC("license") = "GPL";

/* Returns the bucket that its argument falls into. */
SEC("raw_tp/hist_bucket")
int BPF_PROG(bucket_of, __s64 ns)
{
	return hist_bucket(ns);
}

/* The address of the wanted NAPI, once it was polled. */
volatile __u64 polled_napi;
volatile __u32 wanted_napi_id;

SEC("tp_btf/napi_poll")
int BPF_PROG(remember_napi, struct napi_struct *napi)
{
	if (napi->napi_id == wanted_napi_id)
		polled_napi = (__u64)napi;
	return 0;
}

/* Kernel memory that a test fills, and where it is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, unsigned char[4096]);
} memory SEC(".maps");
volatile __u64 memory_address;

SEC("raw_tp/napi_poll")
int BPF_PROG(tell_memory)
{
	__u32 first = 0;

	memory_address = (__u64)bpf_map_lookup_elem(&memory, &first);
	return 0;
}

/* What a program that does nothing costs, on each hook of the receive programs. */
#define EMPTY(hook)                   \
	SEC("tp_btf/" #hook)          \
	int BPF_PROG(empty_##hook)    \
	{                             \
		return 0;             \
	}

EMPTY(napi_poll)
EMPTY(hrtimer_start)
EMPTY(hrtimer_expire_entry)
EMPTY(softirq_raise)
EMPTY(softirq_entry)
EMPTY(softirq_exit)
EMPTY(irq_handler_entry)
EMPTY(irq_handler_exit)
EMPTY(sched_waking)
EMPTY(sched_process_free)
EMPTY(sk_data_ready)
EMPTY(sock_recv_length)
EMPTY(sock_send_length)

/* And one that only reads the clock. */
SEC("tp_btf/napi_poll")
int BPF_PROG(clock_only)
{
	return bpf_ktime_get_ns() == 0;
}
