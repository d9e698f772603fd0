package probe

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"autotune/bpf"
	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// socketTracepoints are those that came in Linux 6.3, socketFunctions what
// stands in for them where functions can be traced.
func socketTracepoints() []string {
	return []string{bpf.ReceiveProgSkDataReady, bpf.ReceiveProgSockRecvLength, bpf.ReceiveProgSockSendLength}
}

func socketFunctions() []string {
	return []string{
		bpf.ReceiveProgSockDefReadable, bpf.ReceiveProgInetRecvmsg, bpf.ReceiveProgInet6Recvmsg,
		bpf.ReceiveProgInetSendmsg, bpf.ReceiveProgInet6Sendmsg,
	}
}

// traceFunction tries whether the kernel lets any program trace a function, by one
// that does nothing.
func traceFunction() error {
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "sock_def_readable",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}, License: "GPL",
	})
	if err != nil {
		return fmt.Errorf("load: %w", honest(err))
	}
	defer empty.Close()
	lnk, err := link.AttachTracing(link.TracingOptions{Program: empty})
	if err != nil {
		return fmt.Errorf("attach: %w", honest(err))
	}
	return lnk.Close()
}

// Both ways of observing sockets see the same requests of the same run.
func TestSubstitutesSeeTheSameRequests(t *testing.T) {
	for _, tt := range []struct {
		name     string
		without  []string
		attached []string
		missing  []string
		// service is how much shorter it may be.
		service float64
	}{
		{
			"functions of the kernel", socketTracepoints(),
			[]string{bpf.ReceiveProgSockDefReadable, bpf.ReceiveProgInetRecvmsg, bpf.ReceiveProgInetSendmsg}, nil, 0.9,
		},
		{
			"tracepoints of TCP", append(socketTracepoints(), socketFunctions()...),
			[]string{bpf.ReceiveProgTcpProbe, bpf.ReceiveProgTcpRcvSpaceAdjust, bpf.ReceiveProgNetDevQueue},
			// The call goes on after the packet has gone to the device.
			[]string{signalSocketReads, signalSocketSends}, 0.3,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testbed.Attempt(t, func(t testing.TB) {
				b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
				b.set(t, deferral(500*time.Microsecond))
				b.serve(t, nil)
				second, other, err := b.variant(t, without(tt.without...))
				if err != nil {
					t.Fatal(err)
				}
				var attached, missing []string
				for _, a := range other.attached {
					attached = append(attached, a.name)
				}
				for _, m := range other.missing {
					missing = append(missing, m.Name)
				}
				if err := traceFunction(); tt.missing == nil && len(missing) > 0 && err != nil {
					testbed.Skip(t, fmt.Sprintf("this kernel refuses to trace functions: %v", err))
				}
				if !slices.Equal(missing, tt.missing) {
					t.Errorf("missing %v, want %v", other.missing, tt.missing)
				}
				for _, name := range tt.attached {
					if !slices.Contains(attached, name) {
						t.Errorf("%s is not attached: %v", name, attached)
					}
				}
				first := b.open(t, Options{Interval: liveInterval})
				b.phase(t, "load", 5000)
				direct, twin := collect(t, first, 8), collect(t, second, 1)
				b.settle(t, first, &direct)
				twin.add(next(t, second))
				twin.add(next(t, second))
				t.Logf("tracepoints %v\nsubstitutes %v", direct.String(), twin.String())
				if direct.delay.Count() < 1000 {
					t.Fatalf("%d delays, want at least 1000", direct.delay.Count())
				}
				for _, h := range []struct {
					name      string
					got, want *model.Histogram
					low       float64
				}{
					{"socket waits", &twin.socket, &direct.socket, 0.8},
					{"services", &twin.service, &direct.service, tt.service},
					{"delays", &twin.delay, &direct.delay, 0.8},
				} {
					within(t, h.name+" by the tracepoints'", float64(h.got.Count())/float64(h.want.Count()), 0.98, 1.02)
					for _, q := range []float64{0.5, 0.9} {
						within(t, fmt.Sprintf("%s, quantile %v, by the tracepoints'", h.name, q),
							float64(h.got.Quantile(q))/float64(h.want.Quantile(q)), h.low, 1.15)
					}
				}
			})
		})
	}
}
