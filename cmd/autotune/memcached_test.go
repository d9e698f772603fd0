package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"autotune/experiments/testbed"

	"golang.org/x/sys/unix"
)

// asGetter makes the test binary a client that asks a memcached for one key
// over many connections, each as fast as answers come. Its value is the
// address.
const asGetter = "AUTOTUNE_TEST_AS_GETTER"

// getterConnections keep the server busy at all times.
const getterConnections = 24

const memcachedPort = 11211

// runGetter stays on CPU 1 and runs until it is killed.
func runGetter(addr string) error {
	var one unix.CPUSet
	one.Set(1)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = unix.SchedSetaffinity(id, &one)
		}
	}
	var seen delays
	for range getterConnections {
		conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			return err
		}
		go seen.ask(conn)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(seen.take())
	}
	return nil
}

// delays are those of a client's requests since they were last taken.
type delays struct {
	mu   sync.Mutex
	list []time.Duration
}

// ask asks for the key until the server is gone.
func (d *delays) ask(conn net.Conn) {
	answers := bufio.NewReader(conn)
	for {
		asked := time.Now()
		if _, err := conn.Write([]byte("get key\r\n")); err != nil {
			return
		}
		for line := ""; line != "END\r\n"; {
			var err error
			if line, err = answers.ReadString('\n'); err != nil {
				return
			}
		}
		d.mu.Lock()
		d.list = append(d.list, time.Since(asked))
		d.mu.Unlock()
	}
}

// take returns number, median and 90th percentile, in nanoseconds.
func (d *delays) take() (n int, p50, p90 int64) {
	d.mu.Lock()
	list := d.list
	d.list = nil
	d.mu.Unlock()
	if len(list) == 0 {
		return 0, 0, 0
	}
	slices.Sort(list)
	return len(list), int64(list[len(list)/2]), int64(list[len(list)*9/10])
}

// newRealtimeBed is newBed with NAPI threads that whatever else runs on their
// CPU does not hold up.
func newRealtimeBed(t *testing.T, queues int) *testbed.Bed {
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
func requireMemcached(t *testing.T) string {
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
func startMemcached(t *testing.T, bed *testbed.Bed) *exec.Cmd {
	t.Helper()
	args := []string{"-c", "0", requireMemcached(t), "-u", "nobody", "-U", "0",
		"-l", bed.Server().Addr.String(), "-p", strconv.Itoa(memcachedPort), "-t", strconv.Itoa(bed.Options().Queues)}
	if queues := bed.Options().Queues; queues > 1 {
		// A thread takes the connections of one NAPI instance.
		args = append(args, "-N", strconv.Itoa(queues))
	}
	// As its NAPI threads, it runs as soon as there is something to do, whatever
	// else shares the machine.
	cmd := exec.Command("chrt", append([]string{"-f", "1", "taskset"}, args...)...)
	if err := bed.Server().Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopProcess(cmd) })
	awaitPort(t, bed, true)
	return cmd
}

// awaitPort waits until the server's port is open, or free.
func awaitPort(t *testing.T, bed *testbed.Bed, open bool) {
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

// getter is such a client.
type getter struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// startGetter loads the memcached of a bed.
func startGetter(t *testing.T, bed *testbed.Bed) *getter {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), asGetter+"="+netip.AddrPortFrom(bed.Server().Addr, memcachedPort).String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Client().Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopProcess(cmd) })
	g := &getter{cmd, in, bufio.NewReader(out)}
	if line, err := g.out.ReadString('\n'); strings.TrimSpace(line) != "ready" {
		t.Fatalf("client: %q, %v", line, err)
	}
	return g
}

// delays returns number, median and 90th percentile since the call before.
func (g *getter) delays(t *testing.T) (n int, p50, p90 time.Duration) {
	t.Helper()
	if _, err := fmt.Fprintln(g.in); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanln(g.out, &n, (*int64)(&p50), (*int64)(&p90)); err != nil {
		t.Fatal(err)
	}
	return n, p50, p90
}
