package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/tuner"
)

// askers is how many connections keep a memcached busy at all times.
const askers = 24

const memcachedPort = 11211

// newRealtimeBed is newBed with NAPI threads that whatever else runs on their
// CPU does not hold up.
func newRealtimeBed(t testing.TB, queues int) *testbed.Bed {
	t.Helper()
	testbed.Require(t)
	bed, err := testbed.New(context.WithoutCancel(t.Context()), testbed.Options{Prefix: "cmd", Queues: queues, Threaded: true, Realtime: true, ClientCPU: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
	})
	return bed
}

// requireMemcached returns the path of Debian's memcached. Under CI it must be
// there.
func requireMemcached(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("memcached")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("memcached is missing; .ci/run installs it")
		}
		t.Skip("memcached is not installed (apt-get install memcached)")
	}
	return path
}

// startMemcached starts one, on CPU 0, with a thread for each queue of the bed.
// It is under SCHED_FIFO where the bed's NAPI threads are.
func startMemcached(t testing.TB, bed *testbed.Bed) *exec.Cmd {
	t.Helper()
	args := []string{"taskset", "-c", "0", requireMemcached(t), "-u", "nobody", "-U", "0",
		"-l", bed.Server().Addr.String(), "-p", strconv.Itoa(memcachedPort), "-t", strconv.Itoa(bed.Options().Queues)}
	if queues := bed.Options().Queues; queues > 1 {
		// A thread takes the connections of one NAPI instance.
		args = append(args, "-N", strconv.Itoa(queues))
	}
	if bed.Options().Realtime {
		args = append([]string{"chrt", "-f", "1"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	if err := bed.Server().Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopProcess(cmd) })
	awaitPort(t, bed, true)
	return cmd
}

// awaitPort waits until the server's port is open, or free.
func awaitPort(t testing.TB, bed *testbed.Bed, open bool) {
	t.Helper()
	addr := netip.AddrPortFrom(bed.Server().Addr, memcachedPort).String()
	for range 200 {
		var conn net.Conn
		err := bed.Client().Do(func() (err error) {
			conn, err = net.DialTimeout("tcp", addr, time.Second)
			return err
		})
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) == open {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the port of memcached is not open: %v", open)
}

func stopProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// startAsking keeps the memcached of a bed busy by a client on CPU 1: the next
// request of a connection, for sixty keys, is sent as soon as its answer has
// come. The client needs a third of the CPU that the server needs.
func startAsking(t testing.TB, bed *testbed.Bed) *workload.Client {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	client, err := workload.StartClient(ctx, workload.Launch{Command: program("experiment", "client"), Start: bed.Client().Start},
		workload.ClientConfig{
			Addr: netip.AddrPortFrom(bed.Server().Addr, memcachedPort), CPU: 1, RuntimeCPU: 1, Connections: askers, Nice: -10,
			Exchange: &workload.Exchange{Request: []byte("get" + strings.Repeat(" key", 60) + "\r\n"), Reply: []byte("END\r\n")},
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Stop(ctx) }) // the server may be gone
	ask(t, client, "started")
	return client
}

// ask begins a new phase of the load.
func ask(t testing.TB, client *workload.Client, phase string) {
	t.Helper()
	if _, err := client.Phase(t.Context(), workload.Phase{Name: phase, Closed: true}); err != nil {
		t.Fatal(err)
	}
}

// delays measures the load for a second.
func delays(t testing.TB, client *workload.Client, phase string) (p50, p90 time.Duration) {
	t.Helper()
	ask(t, client, phase)
	time.Sleep(time.Second)
	ask(t, client, "after "+phase)
	sum := workload.Summarize(client.Intervals(), phase)
	if sum.Completed == 0 {
		t.Fatal("no request was answered")
	}
	return sum.Latency.Quantile(0.5), sum.Latency.Quantile(0.9)
}

// delaysUnderInterrupts measures it as it is left alone, but observed as it is
// when it is tuned: what is compared is the settings, and not the probes.
func delaysUnderInterrupts(t testing.TB, bed *testbed.Bed, client *workload.Client) (p50, p90 time.Duration) {
	t.Helper()
	b := startRun(t, "--apply", "--netns", bed.Server().Name, "--state", t.TempDir(), "--interval", "100ms", "--policy", "base", bed.Server().Ifname)
	b.await("it observes", func(tuner.Entry) bool { return true })
	p50, p90 = delays(t, client, "base")
	if code, stderr := b.stop(os.Interrupt); code != exitDone {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	return p50, p90
}

// expectAsFast fails the test unless median and 90th percentile come within 1.2
// times of what they were. What else runs on the machine disturbs single
// seconds, so the best of some counts.
func expectAsFast(t testing.TB, client *workload.Client, p50Base, p90Base time.Duration) {
	t.Helper()
	const allowed = 1.2
	for try := range 5 {
		p50, p90 := delays(t, client, fmt.Sprint("now ", try))
		t.Logf("p50 %v was %v, p90 %v was %v", p50, p50Base, p90, p90Base)
		if float64(p50) <= allowed*float64(p50Base) && float64(p90) <= allowed*float64(p90Base) {
			return
		}
	}
	t.Errorf("in no second p50 and p90 were within %v times of what they were", allowed)
}
