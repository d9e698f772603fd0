//go:build linux

package testbed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"autotune/experiments/testbed"
)

func newBed(t *testing.T, options testbed.Options) *testbed.Bed {
	t.Helper()
	bed, err := testbed.New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return bed
}

// eventually fails the test if done does not become true in time.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// threadsIn counts the threads of this process that are in a namespace
// with that inode.
func threadsIn(t *testing.T, inode uint64) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, link := range links {
		target, err := os.Readlink(link)
		if err == nil && target == fmt.Sprintf("net:[%d]", inode) {
			count++
		}
	}
	return count
}

func TestBedGoesUpAndLeavesNothing(t *testing.T) {
	testbed.Require(t)
	bed := newBed(t, testbed.Options{Prefix: "updown", Queues: 4, Threaded: true, ServerCPU: 0, ClientCPU: 1})

	napis, err := bed.NAPIs()
	if err != nil {
		t.Fatal(err)
	}
	if len(napis) != 4 {
		t.Fatalf("%d NAPI instances, want one for each of 4 queues: %+v", len(napis), napis)
	}
	threads, err := bed.NAPIThreads()
	if err != nil {
		t.Fatal(err)
	}
	if len(threads) != 4 {
		t.Fatalf("%d NAPI threads, want 4: %v", len(threads), threads)
	}
	for _, pid := range threads {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(pid, &set); err != nil {
			t.Fatal(err)
		}
		if set.Count() != 1 || !set.IsSet(0) {
			t.Errorf("NAPI thread %d may run on %d CPUs, want only CPU 0", pid, set.Count())
		}
	}

	if err := bed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, ns := range []*testbed.Namespace{bed.Server(), bed.Client()} {
		if exists(ns.Path) {
			t.Errorf("%s still exists", ns.Path)
		}
		eventually(t, "no thread left in "+ns.Name, func() bool { return threadsIn(t, ns.Inode) == 0 })
	}
	for _, pid := range threads {
		eventually(t, fmt.Sprintf("NAPI thread %d gone", pid), func() bool {
			return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
		})
	}
	if err := bed.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// open opens a UDP socket inside a namespace, until the test ends.
func open(t *testing.T, ns *testbed.Namespace) net.PacketConn {
	t.Helper()
	var conn net.PacketConn
	err := ns.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", net.JoinHostPort(ns.Addr.String(), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// exchange sends packets by UDP from the client's to the server's side and
// returns once they arrived.
func exchange(t *testing.T, bed *testbed.Bed, packets int) {
	t.Helper()
	server, client := open(t, bed.Server()), open(t, bed.Client())
	if err := server.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	for i := range packets {
		if _, err := client.WriteTo([]byte{byte(i)}, server.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		n, from, err := server.ReadFrom(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if from.String() != client.LocalAddr().String() || n != 1 || buffer[0] != byte(i) {
			t.Fatalf("packet %d: got %v from %v", i, buffer[:n], from)
		}
	}
}

func TestPacketsPassThroughTheNAPIs(t *testing.T) {
	testbed.Require(t)
	for _, receive := range []testbed.ClientReceive{testbed.ClientReceiveThread, testbed.ClientReceiveSteer, testbed.ClientReceiveInline} {
		t.Run(string(receive), func(t *testing.T) {
			bed := newBed(t, testbed.Options{Prefix: "packets", Queues: 2, Threaded: true, ServerCPU: 0, ClientCPU: 1, ClientReceive: receive})
			before, err := bed.RxPackets()
			if err != nil {
				t.Fatal(err)
			}
			const packets = 100
			exchange(t, bed, packets)
			after, err := bed.RxPackets()
			if err != nil {
				t.Fatal(err)
			}
			if got := after - before; got != packets {
				t.Errorf("rx_packets rose by %d, want %d: nothing but the test's packets may flow", got, packets)
			}
			byQueue, err := bed.RxPacketsByQueue()
			if err != nil {
				t.Fatal(err)
			}
			var sum uint64
			for _, n := range byQueue {
				sum += n
			}
			if len(byQueue) != 2 || sum != after {
				t.Errorf("packets by queue %v, want 2 queues with a sum of %d", byQueue, after)
			}
		})
	}
}

func TestFlowsSpreadOverTheQueues(t *testing.T) {
	testbed.Require(t)
	bed := newBed(t, testbed.Options{Prefix: "spread", Queues: 2, Threaded: true, ClientCPU: 1})
	// The sender's hash of the flow chooses the queue. That 64 flows miss one
	// of two by chance does not happen.
	for range 64 {
		exchange(t, bed, 1)
	}
	byQueue, err := bed.RxPacketsByQueue()
	if err != nil {
		t.Fatal(err)
	}
	if byQueue[0] == 0 || byQueue[1] == 0 || byQueue[0]+byQueue[1] != 64 {
		t.Errorf("packets by queue %v, want 64 over both", byQueue)
	}
}

func TestTwoBedsStandSideBySide(t *testing.T) {
	testbed.Require(t)
	options := testbed.Options{Prefix: "pair", Threaded: true, ClientCPU: 1}
	first, second := newBed(t, options), newBed(t, options)
	if first.Server().Inode == second.Server().Inode || first.Server().Name == second.Server().Name {
		t.Fatalf("the beds share a namespace: %s and %s", first.Server().Name, second.Server().Name)
	}
	exchange(t, first, 10)
	exchange(t, second, 10)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	exchange(t, second, 10)
}

func TestLinkFlapPinsTheNewThreads(t *testing.T) {
	testbed.Require(t)
	bed := newBed(t, testbed.Options{Prefix: "flap", Queues: 2, Threaded: true, Realtime: true, ServerCPU: 1})
	before, err := bed.NAPIThreads()
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.LinkFlap(t.Context()); err != nil {
		t.Fatal(err)
	}
	after, err := bed.NAPIThreads()
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != 2 || slices.Equal(before, after) {
		t.Fatalf("NAPI threads %v before and %v after, want two new ones", before, after)
	}
	for _, pid := range after {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(pid, &set); err != nil {
			t.Fatal(err)
		}
		if set.Count() != 1 || !set.IsSet(1) {
			t.Errorf("NAPI thread %d may run on %d CPUs, want only CPU 1", pid, set.Count())
		}
		attr, err := unix.SchedGetAttr(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		if attr.Policy != unix.SCHED_FIFO {
			t.Errorf("NAPI thread %d has scheduling policy %d, want SCHED_FIFO", pid, attr.Policy)
		}
	}
	exchange(t, bed, 10)
}

func TestEndOfTheContextClosesTheBed(t *testing.T) {
	testbed.Require(t)
	ctx, cancel := context.WithCancel(t.Context())
	bed, err := testbed.New(ctx, testbed.Options{Prefix: "context"})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	eventually(t, "both names gone", func() bool {
		return !exists(bed.Server().Path) && !exists(bed.Client().Path)
	})
	if err := bed.Close(); err != nil {
		t.Errorf("close after the context ended: %v", err)
	}
}

func TestOptionsOutsideTheirRangeAreRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		options testbed.Options
		want    string
	}{
		{"too many queues", testbed.Options{Queues: 1025}, "1025 queues: want 1 to 1024"},
		{"a negative number of queues", testbed.Options{Queues: -1}, "-1 queues: want 1 to 1024"},
		{"an MTU below IPv4's least", testbed.Options{MTU: 67}, "MTU 67: want 68 to 65535"},
		{"a negative CPU", testbed.Options{ServerCPU: -1}, "CPUs -1 and 0: want none negative"},
		{"an unknown way to receive", testbed.Options{ClientReceive: "maybe"}, `client receive "maybe": want "thread", "steer" or "inline"`},
		{"a prefix with a slash", testbed.Options{Prefix: "a/b"}, `prefix "a/b": want 1 to 32 of a-z and 0-9`},
	} {
		t.Run(test.name, func(t *testing.T) {
			bed, err := testbed.New(t.Context(), test.options)
			if err == nil {
				t.Fatalf("New succeeded, want an error (close: %v)", bed.Close())
			}
			if diff := cmp.Diff(test.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func beds(t *testing.T, prefix string) []string {
	t.Helper()
	entries, err := os.ReadDir("/run/netns")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "autotune-"+prefix+"-") {
			names = append(names, entry.Name())
		}
	}
	return names
}
