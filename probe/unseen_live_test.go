package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// unseen counts what the kernel of some machines keeps from BPF programs: on the
// one that this was developed on none runs in a softirq that interrupts a thread
// of process 1, and none of the kernel's counts of missed runs tells. The trace
// events of ftrace have those polls.
type unseen struct {
	tracefs  *os.File
	instance string
}

// startUnseen begins to record polls that interrupt process 1, in an instance of
// the trace that nothing else writes to.
func startUnseen(tb testing.TB) *unseen {
	tb.Helper()
	tracefs, err := openTracefs()
	if err != nil {
		tb.Fatal(err)
	}
	root := fmt.Sprintf("/proc/self/fd/%d/instances", tracefs.Fd())
	instance, err := os.MkdirTemp(root, "autotune-test-")
	if err != nil {
		tb.Fatal(err)
	}
	u := &unseen{tracefs, instance}
	tb.Cleanup(func() {
		u.write(tb, "events/napi/napi_poll/enable", "0")
		if err := os.Remove(u.instance); err != nil {
			tb.Errorf("remove the instance of the trace: %v", err)
		}
		if err := u.tracefs.Close(); err != nil {
			tb.Error(err)
		}
	})
	threads, err := filepath.Glob("/proc/1/task/*")
	if err != nil {
		tb.Fatal(err)
	}
	for i, thread := range threads {
		threads[i] = filepath.Base(thread)
	}
	u.write(tb, "set_event_pid", strings.Join(threads, " "))
	u.write(tb, "options/event-fork", "1")
	u.write(tb, "events/napi/napi_poll/enable", "1")
	return u
}

func (u *unseen) write(tb testing.TB, name, text string) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(u.instance, name), []byte(text), 0); err != nil {
		tb.Fatal(err)
	}
}

var napiPollEvent = regexp.MustCompile(`for device (\S+) work (\d+) budget`)

// packets returns how many packets polls of the interface found since the start.
// Beds of others may have an interface of the same name: it is at most these.
func (u *unseen) packets(tb testing.TB, ifname string) (packets uint64) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(u.instance, "trace"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, event := range napiPollEvent.FindAllStringSubmatch(string(text), -1) {
		if event[1] != ifname {
			continue
		}
		n, err := strconv.ParseUint(event[2], 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		packets += n
	}
	return packets
}

// compare fails the test unless the packets that were polled are those that the
// interface received, but for unseen ones. A packet that came while the test read
// the interface's count for the first time may be one more.
func (u *unseen) compare(tb testing.TB, b *bed, polled, received uint64) {
	tb.Helper()
	hidden := u.packets(tb, b.Server().Ifname)
	tb.Logf("%d packets received, %d polled, %d polled unseen", received, polled, hidden)
	if polled > received+1 || polled+hidden < received {
		tb.Errorf("%d packets polled and at most %d polled unseen, of %d received", polled, hidden, received)
	}
}
