/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Returns of epoll_wait.
 */
#ifndef AUTOTUNE_EPOLL_H
#define AUTOTUNE_EPOLL_H

/*
 * room returns maxevents, which the registers of the caller keep until the
 * call returns; so its entry need not be traced. 0 where it is not known.
 */
static __always_inline __s32 room(void)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	struct pt_regs___x86 *x86 = (void *)regs;
	struct pt_regs___arm64 *arm64 = (void *)regs;

	if (bpf_core_field_exists(x86->dx))
		return BPF_CORE_READ(x86, dx);
	if (bpf_core_field_exists(arm64->regs))
		return BPF_CORE_READ(arm64, regs[2]);
	return 0;
}

static __always_inline int epoll_returned(struct syscall_exit *ctx)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct app_waits *app;
	__u64 bucket;

	if (ctx->ret < 0)
		return 0;
	app = bpf_map_lookup_elem(&apps, &tgid);
	if (!app)
		return 0;
	bucket = ctx->ret;
	__sync_fetch_and_add(&app->returned, bucket);
	if (bucket && bucket == room())
		__sync_fetch_and_add(&app->full, 1);
	/* Keeps the compiler from testing another register than it uses. */
	barrier_var(bucket);
	if (bucket >= WORK_BUCKETS)
		bucket = WORK_BUCKETS - 1;
	__sync_fetch_and_add(&app->events[bucket], 1);
	emit_wait(tgid, ctx->ret);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_epoll_wait")
int epoll_wait(struct syscall_exit *ctx)
{
	return epoll_returned(ctx);
}

SEC("tracepoint/syscalls/sys_exit_epoll_pwait")
int epoll_pwait(struct syscall_exit *ctx)
{
	return epoll_returned(ctx);
}

SEC("tracepoint/syscalls/sys_exit_epoll_pwait2")
int epoll_pwait2(struct syscall_exit *ctx)
{
	return epoll_returned(ctx);
}

#endif
