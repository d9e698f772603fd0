//go:build linux

package workload_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"autotune/experiments/testbed"
	"autotune/experiments/workload"
)

// roleVariable makes the test binary the process of a server or a client.
const roleVariable = "AUTOTUNE_TEST_WORKLOAD"

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "server":
		err = workload.RunServer(os.Stdin, os.Stdout)
	case "client":
		err = workload.RunClient(os.Stdin, os.Stdout)
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func launch(tb testing.TB, role string, ns *testbed.Namespace) workload.Launch {
	tb.Helper()
	executable, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	l := workload.Launch{Command: cmd}
	if ns != nil {
		l.Start = ns.Start
	}
	return l
}

// The CPUs of the two sides. The client's is shared with the test itself.
const (
	serverCPU = 0
	clientCPU = 1
	// nice lets a client that spins keep its CPU where the machine is also
	// building something.
	nice = -19
)

type rig struct {
	bed    *testbed.Bed
	server *workload.Server
	client *workload.Client
}

func newRig(tb testing.TB, options testbed.Options, server workload.ServerConfig, client workload.ClientConfig) *rig {
	tb.Helper()
	testbed.Alone(tb)
	// The bed outlives the processes, and both outlive the test's context.
	ctx := context.WithoutCancel(tb.Context())
	options.Prefix = "workload"
	options.Threaded = true
	// As other tests may run on the same CPUs.
	options.Realtime, server.Realtime = true, true
	options.ServerCPU, options.ClientCPU = serverCPU, clientCPU
	bed, err := testbed.New(ctx, options)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := bed.Close(); err != nil {
			tb.Errorf("close the bed: %v", err)
		}
	})
	r := &rig{bed: bed}
	server.Addr = netip.AddrPortFrom(bed.Server().Addr, 0)
	server.CPU, server.RuntimeCPU = serverCPU, clientCPU
	r.server, err = workload.StartServer(ctx, launch(tb, "server", bed.Server()), server, nil)
	if err != nil {
		tb.Fatal(err)
	}
	client.Addr = r.server.Addr()
	client.CPU, client.RuntimeCPU, client.Nice = clientCPU, clientCPU, nice
	r.client, err = workload.StartClient(ctx, launch(tb, "client", bed.Client()), client, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}
