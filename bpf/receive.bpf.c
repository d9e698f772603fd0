//go:build ignore
// SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0

/*
 * What the receive path does to the NAPI instances of one run, and how long
 * requests wait on their way through it.
 *
 * The file is compiled for BTF-typed tracepoints, whose arguments are read
 * directly, and (RAW_TRACEPOINTS) for raw tracepoints, whose arguments are read
 * by bpf_probe_read_kernel, where a host refuses the former; and each of them
 * once more (EVENTS) with programs that can tell of single events.
 */

#include "types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "hist.h"

#ifdef RAW_TRACEPOINTS
#define TRACEPOINT(name) SEC("raw_tp/" name)
#define READ(pointer, member) BPF_CORE_READ(pointer, member)
#define READ_VIA(pointer, via, member) BPF_CORE_READ(pointer, via, member)
#else
#define TRACEPOINT(name) SEC("tp_btf/" name)
#define READ(pointer, member) ((pointer)->member)
#define READ_VIA(pointer, via, member) ((pointer)->via->member)
#endif

char LICENSE[] SEC("license") = "GPL";

#include "state.h"
#include "events.h"
#include "waits.h"
#include "stamps.h"
#include "interrupts.h"
#include "polls.h"
#include "timers.h"
#include "tasks.h"
#include "sockets.h"
#include "epoll.h"
