/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * Hard and soft interrupts: when packets were announced, and the time that
 * handling them takes.
 */
#ifndef AUTOTUNE_INTERRUPTS_H
#define AUTOTUNE_INTERRUPTS_H

TRACEPOINT("softirq_raise")
int BPF_PROG(softirq_raise, unsigned int vec)
{
	struct cpu_state *cpu;

	if (vec != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (cpu && !cpu->raised_at && (!poll_mask || cpu->timed))
		cpu->raised_at = bpf_ktime_get_ns();
	return 0;
}

TRACEPOINT("softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vec)
{
	struct cpu_state *cpu;

	if (vec != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0;
	cpu->entered_at = bpf_ktime_get_ns();
	cpu->last_at = cpu->entered_at;
	cpu->started_at = cpu->raised_at ? cpu->raised_at : cpu->entered_at;
	cpu->raised_at = 0;
	cpu->idle = beyond_tasks(cpu);
	cpu->in_net_rx = 1;
	return 0;
}

TRACEPOINT("softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vec)
{
	struct cpu_state *cpu;
	__u64 spent;

	if (vec != NET_RX_SOFTIRQ)
		return 0;
	cpu = this_cpu();
	if (!cpu)
		return 0;
	if (cpu->in_net_rx) {
		spent = bpf_ktime_get_ns() - cpu->entered_at;
		cpu->net_rx += spent;
		if (cpu->idle)
			cpu->net_rx_idle += spent;
	}
	cpu->in_net_rx = 0;
	return 0;
}

TRACEPOINT("irq_handler_entry")
int BPF_PROG(irq_handler_entry)
{
	struct cpu_state *cpu = this_cpu();

	if (!cpu)
		return 0;
	cpu->irqs++;
	cpu->irq_at = samples(&cpu->random) ? bpf_ktime_get_ns() : 0;
	return 0;
}

/*
 * The handlers of one line that several devices share are timed one by one, as
 * they are counted.
 */
TRACEPOINT("irq_handler_exit")
int BPF_PROG(irq_handler_exit)
{
	struct cpu_state *cpu = this_cpu();
	__u64 spent;

	if (!cpu || !cpu->irq_at)
		return 0;
	spent = bpf_ktime_get_ns() - cpu->irq_at;
	cpu->irq_at = 0;
	cpu->irqs_timed++;
	cpu->irq_time += spent;
	if (irq_time_apart || !(__u32)bpf_get_current_pid_tgid())
		cpu->irq_time_idle += spent;
	if (cpu->in_net_rx) {
		cpu->entered_at += spent;
		if (cpu->last_at)
			cpu->last_at += spent;
	}
	return 0;
}

/*
 * Only a task that sleeps is woken, so that the last time is the first since it
 * went to sleep.
 */
TRACEPOINT("sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct thread_state *thread;
	__u32 pid, index, i, *at;

	if (!(READ(task, flags) & PF_KTHREAD))
		return 0;
	pid = READ(task, pid);
	for (i = 0; i < PROBES; i++) {
		index = (pid + i) & place_mask;
		at = bpf_map_lookup_elem(&thread_pids, &index);
		if (!at || *at != pid)
			continue;
		thread = bpf_map_lookup_elem(&threads, &index);
		if (thread)
			thread->woken_at = bpf_ktime_get_ns();
		return 0;
	}
	return 0;
}

#endif
