package probe

import (
	"errors"
	"fmt"

	"autotune/bpf"
)

// errRealtime: what softirqs take on a PREEMPT_RT kernel cannot be told from
// what interrupts them.
var errRealtime = errors.New("this is a PREEMPT_RT kernel: softirqs run in threads that other tasks interrupt")

const softirqTimesLost = "NET_RX time per CPU and NAPI"

// noteTimes decides whether the times of softirqs can be told.
func (p *programs) noteTimes(realtime bool) {
	switch {
	case !p.signals[signalSoftirqs]:
	case realtime:
		p.note(signalSoftirqTimes, softirqTimesLost, nil, errRealtime)
	default:
		p.signals[signalSoftirqTimes] = true
	}
}

// describeHost tells the programs how the kernel accounts the time of
// interrupts.
func (p *programs) describeHost(l *loader, procfs string) error {
	apart, err := l.accountsInterruptsApart()
	if err != nil || !apart {
		return err
	}
	threads, err := softirqThreads(procfs)
	if err != nil {
		return err
	}
	for cpu, pid := range threads {
		if cpu >= p.sizes.cpus {
			continue
		}
		state := bpf.ReceiveCpuState{Ksoftirqd: uint32(pid)}
		if err := p.collection.Maps[bpf.ReceiveMapCpus].Put(uint32(cpu), state); err != nil {
			return fmt.Errorf("tell the softirq thread of CPU %d: %w", cpu, err)
		}
	}
	return p.set(bpf.ReceiveVarIrqTimeApart, 1)
}

// accountsInterruptsApart reports whether the kernel was built with
// IRQ_TIME_ACCOUNTING: only then does it have the type that keeps it
// (kernel/sched/sched.h).
func (l *loader) accountsInterruptsApart() (bool, error) {
	kernel, err := l.types.Kernel()
	if err != nil {
		return false, fmt.Errorf("read the kernel's types: %w", err)
	}
	types, err := kernel.AnyTypesByName("irqtime")
	return err == nil && len(types) > 0, nil
}
