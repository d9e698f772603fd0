package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFindPicksBySelector(t *testing.T) {
	proc := t.TempDir()
	write(t, proc, "uptime", "1 1\n")
	for _, p := range []struct{ pid, comm, stat, cgroup string }{
		{"7", "server", "7 (server) S 1 7 7 0 -1 4194304 0", "3:cpu:/\n0::/web/a\n"},
		{"8", "server", "8 (ser) ver) S 1 8 8 0 -1 4194304 0", "0::/web\n"},
		{"9", "server", "9 (server) S 2 0 0 0 -1 2129984 0", "0::/\n"}, // a kernel thread
		{"10", "other", "10 (other) S 1 10 10 0 -1 4194304 0", "0::/webs\n"},
	} {
		write(t, proc, p.pid+"/comm", p.comm+"\n")
		write(t, proc, p.pid+"/stat", p.stat)
		write(t, proc, p.pid+"/cgroup", p.cgroup)
	}
	if err := os.Mkdir(filepath.Join(proc, "11"), 0o755); err != nil { // just ended
		t.Fatal(err)
	}
	for selector, want := range map[string][]Process{
		"comm=server": {{7, "server"}, {8, "server"}},
		"pid=10":      {{10, "other"}},
		"pid=9":       nil,
		"cgroup=/web": {{7, "server"}, {8, "server"}},
		"comm=none":   nil,
	} {
		s, err := model.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Find(proc, s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", selector, diff)
		}
	}
}

func TestEpollWaitIsToldFromOtherCalls(t *testing.T) {
	number := epollWaits()[0]
	for _, tt := range []struct {
		text string
		fd   int
		ok   bool
	}{
		{"running\n", 0, false},
		{"-1 0x7ffd 0x7f4e\n", 0, false},
		{"0 0x5 0x7ffd 0x1 0x0 0x0 0x0 0x7ffd 0x7f4e\n", 0, false},
		{"", 0, false},
		{"441 0x1f 0x7ffd 0x1 0x0 0x0 0x0 0x7ffd 0x7f4e\n", 31, true},
		{"441 0xffffffff 0x7ffd 0x1 0x0 0x0 0x0 0x7ffd 0x7f4e\n", 0, false},
		{"441 0xffff00000003 0x7ffd 0x1 0x0 0x0 0x0 0x7ffd 0x7f4e\n", 3, true},
	} {
		if fd, ok := epollWait(tt.text); ok != tt.ok || ok && fd != tt.fd {
			t.Errorf("%q: epoll_wait of %d: %v, want %d: %v", tt.text, fd, ok, tt.fd, tt.ok)
		}
	}
	if number == unix.SYS_READ {
		t.Errorf("read is taken for epoll_wait")
	}
}

// TestMain lets the test binary be a process that waits.
func TestMain(m *testing.M) {
	if os.Getenv("PROCESS_TEST_WAIT") == "" {
		os.Exit(m.Run())
	}
	fd, err := unix.EpollCreate1(0)
	if err == nil {
		err = unix.Dup3(fd, 77, 0)
	}
	if err == nil {
		_, err = unix.EpollWait(77, make([]unix.EpollEvent, 1), 20000)
	}
	if err != nil {
		os.Exit(1)
	}
}

func TestThreadsOfARunningProcess(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "PROCESS_TEST_WAIT=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	deadline := time.After(10 * time.Second)
	for {
		threads, err := Threads("/proc", pid)
		if err != nil {
			t.Fatal(err)
		}
		waiting := 0
		for _, thread := range threads {
			var set unix.CPUSet
			if err := unix.SchedGetaffinity(thread.TID, &set); err == nil && set.Count() != len(thread.CPUs) {
				t.Errorf("thread %d may run on %v, want %d CPUs", thread.TID, thread.CPUs, set.Count())
			}
			if thread.Waits != nil && *thread.Waits == 77 {
				waiting++
			}
		}
		if waiting == 1 {
			break
		}
		select {
		case <-deadline:
			t.Fatalf("no thread of %v was seen waiting for descriptor 77", threads)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	ended = true
	if threads, err := Threads("/proc", pid); err != nil || len(threads) != 0 {
		t.Errorf("a process that has ended has threads %v, error %v; want none", threads, err)
	}
}

func TestNodesOfCPUs(t *testing.T) {
	sys := t.TempDir()
	write(t, sys, "devices/system/node/node0/cpulist", "0-1,4\n")
	write(t, sys, "devices/system/node/node1/cpulist", "2-3\n")
	write(t, sys, "devices/system/node/node2/cpulist", "\n") // memory only
	want := map[int]int{0: 0, 1: 0, 4: 0, 2: 1, 3: 1}
	if diff := cmp.Diff(want, Nodes(sys)); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if got := Nodes(t.TempDir()); got != nil {
		t.Errorf("nodes of a kernel without NUMA are %v, want none", got)
	}
}
