/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Processes that receive, and their ends.
 */
#ifndef AUTOTUNE_TASKS_H
#define AUTOTUNE_TASKS_H

/* describe_app takes note of who the process is. Where it can do without
 * bpf_probe_read_kernel it must: a kernel in lockdown refuses that. */
static __always_inline void describe_app(struct app_waits *app)
{
#ifdef RAW_TRACEPOINTS
	struct task_struct *task = (void *)bpf_get_current_task();
	struct task_struct *leader = BPF_CORE_READ(task, group_leader);

	app->started = BPF_CORE_READ(leader, start_boottime);
	app->ended_time = BPF_CORE_READ(leader, signal, sum_sched_runtime);
	BPF_CORE_READ_STR_INTO(&app->comm, leader, comm);
#else
	struct task_struct *leader = bpf_get_current_task_btf()->group_leader;
	int i;

	app->started = leader->start_boottime;
	app->ended_time = leader->signal->sum_sched_runtime;
#pragma unroll
	for (i = 0; i < (int)sizeof(app->comm); i++)
		app->comm[i] = leader->comm[i];
#endif
}

/* remember_app makes the process that runs now known. */
static __always_inline void remember_app(void)
{
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, zero = 0;
	struct app_waits *app;

	app = bpf_map_lookup_elem(&apps, &tgid);
	/* Another process has the ID of one that has ended. */
	if (likely(app && !app->ended))
		return;
	app = bpf_map_lookup_elem(&no_waits, &zero);
	/* Where it does not fit now it is tried again at the next read, and no
	 * window rests on the detail. */
	if (!app || bpf_map_update_elem(&apps, &tgid, app, BPF_ANY))
		return;
	app = bpf_map_lookup_elem(&apps, &tgid);
	if (app)
		describe_app(app);
}

/*
 * A task that nothing in the kernel refers to any more: it has run for the last
 * time, which is not so yet when it exits, and its parent has been told.
 */
TRACEPOINT("sched_process_free")
int BPF_PROG(sched_process_free, struct task_struct *task)
{
	__u32 tgid = READ(task, tgid);
	struct app_waits *app = bpf_map_lookup_elem(&apps, &tgid);
	__u64 all;

	if (!app || app->ended)
		return 0;
	__sync_fetch_and_add(&app->ended_time, READ(task, se.sum_exec_runtime));
	if (READ(task, pid) != tgid)
		return 0;
	/* The first thread ends last, but other CPUs may not have come to the
	 * others yet. The kernel's sum has them all, short of the last tick. */
	all = READ_VIA(task, signal, sum_sched_runtime);
	if (app->ended_time < all)
		app->ended_time = all;
	app->ended = 1;
	return 0;
}

#endif
