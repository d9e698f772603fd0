package busypoll

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"autotune/experiments/testbed"
	"autotune/model"
	"autotune/probe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParametersCoverAll(t *testing.T) {
	want := Params{Usecs: 5, Budget: 6, Prefer: true}
	var got Params
	for _, n := range Parameters() {
		got = n.With(got, n.Of(want))
	}
	if got != want {
		t.Errorf("copied %v, want %v", got, want)
	}
	if p := FromModel(model.BusyPoll{Span: 64 * time.Microsecond, Budget: 8, Prefer: true}); p != (Params{64, 8, true}) {
		t.Errorf("from a setting: %v", p)
	}
}

// procFixture is a procfs of a target of user 1000 and a caller of user own.
func procFixture(own string, capabilities, yama string) fstest.MapFS {
	files := fstest.MapFS{
		"42/status":   {Data: []byte("Name:\tapp\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n")},
		"self/status": {Data: []byte("Name:\tautotune\nUid:\t" + own + "\t0\t0\t0\nCapEff:\t" + capabilities + "\n")},
	}
	if yama != "" {
		files["sys/kernel/yama/ptrace_scope"] = &fstest.MapFile{Data: []byte(yama + "\n")}
	}
	return files
}

func TestWhyAProcessCannotBeReached(t *testing.T) {
	const none, ptrace = "0000000000000000", "0000000000080000"
	for _, tt := range []struct {
		name string
		proc fstest.MapFS
		// namespace of the target, empty where it may not be read; own is the
		// caller's.
		namespace string
		own       string
		want      Reason
		says      string
	}{
		{"another user's", procFixture("1001", none, ""), initUserNamespace, initUserNamespace, ReasonUser, "user 1000"},
		{"another user's, with Yama", procFixture("1001", none, "1"), initUserNamespace, initUserNamespace, ReasonUser, "user 1000"},
		{"own, restricted by Yama", procFixture("1000", none, "1"), initUserNamespace, initUserNamespace, ReasonYama, "ptrace_scope is 1"},
		{"own, admin only by Yama", procFixture("1000", none, "2"), initUserNamespace, initUserNamespace, ReasonYama, "ptrace_scope is 2"},
		{"forbidden to root by Yama", procFixture("0", ptrace, "3"), initUserNamespace, initUserNamespace, ReasonYama, "until the next boot"},
		{"own, not dumpable", procFixture("1000", none, "0"), initUserNamespace, initUserNamespace, ReasonProtected, "PR_SET_DUMPABLE"},
		{"refused to root", procFixture("0", ptrace, "1"), initUserNamespace, initUserNamespace, ReasonProtected, "seccomp"},
		{"in another user namespace", procFixture("0", ptrace, ""), "user:[2]", "user:[1]", ReasonUserNamespace, "user namespace"},
		{"in one that may not even be seen", procFixture("0", ptrace, ""), "", "user:[1]", ReasonUserNamespace, "user namespace"},
		{"refused to root of the host", procFixture("0", ptrace, ""), "", initUserNamespace, ReasonProtected, "seccomp"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := explain(Handle{PID: 42, FD: 5}, opPidfdGetfd, unix.EPERM, func() facts {
				return readFacts(tt.proc, 42, func(name string) (string, error) {
					switch {
					case !strings.HasPrefix(name, "42"):
						return tt.own, nil
					case tt.namespace == "":
						return "", os.ErrPermission
					default:
						return tt.namespace, nil
					}
				})
			})
			var denied *Error
			if !errors.As(err, &denied) || denied.Reason != tt.want || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want reason %q and %q", err, tt.want, tt.says)
			}
			if !errors.Is(err, os.ErrPermission) || !errors.Is(err, unix.EPERM) {
				t.Errorf("%v is no permission error", err)
			}
		})
	}
}

func TestWhatTheKernelLacksIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name string
		op   string
		err  unix.Errno
		want Reason
		says string
	}{
		{"no pidfd_getfd", opPidfdGetfd, unix.ENOSYS, ReasonNoPidfd, "5.6"},
		{"no pidfd_open", opPidfdOpen, unix.ENOSYS, ReasonNoPidfd, "5.6"},
		{"no ioctl at all", opGetParams, unix.ENOTTY, ReasonNoParams, "6.9"},
		{"no such ioctl", opGetParams, unix.EINVAL, ReasonNoParams, "6.9"},
		{"no such ioctl to set", opSetParams, unix.ENOTTY, ReasonNoParams, "6.9"},
		{"built without", opSetParams, unix.EOPNOTSUPP, ReasonNoParams, "CONFIG_NET_RX_BUSY_POLL"},
		{"budget without privilege", opSetParams, unix.EPERM, ReasonNetAdmin, "CAP_NET_ADMIN"},
		{"socket option without privilege", opSetsockopt, unix.EPERM, ReasonNetAdmin, "CAP_NET_ADMIN"},
		{"no socket option", opGetsockopt, unix.ENOPROTOOPT, ReasonNoParams, "5.11"},
		{"out of descriptors", opPidfdGetfd, unix.EMFILE, ReasonOther, "pidfd_getfd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := explain(Handle{PID: 42, FD: 5}, tt.op, tt.err, func() facts { t.Fatal("no facts are needed"); return facts{} })
			var out *Error
			if !errors.As(err, &out) || out.Reason != tt.want || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want reason %q and %q", err, tt.want, tt.says)
			}
			readOnly := tt.want == ReasonNoPidfd || tt.want == ReasonNoParams
			if errors.Is(err, model.ErrReadOnly) != readOnly {
				t.Errorf("%v: read-only is %v", err, !readOnly)
			}
		})
	}
	for _, errno := range []unix.Errno{unix.ESRCH, unix.EBADF} {
		if err := explain(Handle{}, opPidfdGetfd, errno, nil); !errors.Is(err, ErrVanished) || !errors.Is(err, model.ErrGone) {
			t.Errorf("%v: %v, want ErrVanished", errno, err)
		}
	}
}

func TestParseStart(t *testing.T) {
	fields := make([]string, 50)
	for i := range fields {
		fields[i] = "0"
	}
	fields[22-3] = "12345"
	stat := "7 (a ) (b) " + strings.Join(slices.Concat([]string{"S"}, fields[1:]), " ")
	if got, err := parseStart([]byte(stat)); err != nil || got != 12345 {
		t.Errorf("%d, %v, want 12345", got, err)
	}
	for _, bad := range []string{"", "7 (a", "7 (a) S 1", strings.Replace(stat, "12345", "x", 1)} {
		if got, err := parseStart([]byte(bad)); err == nil {
			t.Errorf("%q was read as %d", bad, got)
		}
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add([]byte("1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9 10"))
	f.Fuzz(func(_ *testing.T, stat []byte) { _, _ = parseStart(stat) })
}

// ownEpoll makes an epoll context of the test's own.
func ownEpoll(t *testing.T) Handle {
	t.Helper()
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	start, err := Live{}.Start(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return Handle{PID: os.Getpid(), Start: start, FD: fd, Kind: KindEpoll}
}

// requireParams lets a test go on where the kernel's contexts have parameters,
// which every kernel has that live tests run on.
func requireParams(t *testing.T) {
	t.Helper()
	testbed.Require(t)
	if err := TryEpoll(); err != nil {
		t.Fatal(err)
	}
}

func TestSwapWritesOnlyWhatIsExpected(t *testing.T) {
	requireParams(t)
	h := ownEpoll(t)
	want := Params{Usecs: 50, Budget: 16, Prefer: true}
	if now, err := (Live{}).Swap(h, Params{}, want); err != nil || now != want {
		t.Fatalf("swap: %v, %v", now, err)
	}
	if now, err := (Live{}).Swap(h, Params{Usecs: 1}, Params{Usecs: 2}); err != nil || now != want {
		t.Errorf("swap from another value: %v, %v, want %v untouched", now, err, want)
	}
	if got, err := (Live{}).Get(h); err != nil || got != want {
		t.Errorf("get: %v, %v", got, err)
	}
}

func TestWhatIsNotMeantIsNotTouched(t *testing.T) {
	requireParams(t)
	h := ownEpoll(t)
	pipe, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer other.Close()
	for name, handle := range map[string]Handle{
		"not an epoll context": {PID: h.PID, Start: h.Start, FD: int(pipe.Fd()), Kind: KindEpoll},
		"no descriptor":        {PID: h.PID, Start: h.Start, FD: 1 << 20, Kind: KindEpoll},
		"a later process":      {PID: h.PID, Start: h.Start + 1, FD: h.FD, Kind: KindEpoll},
		"no process":           {PID: 1 << 22, FD: 3, Kind: KindEpoll},
		"an epoll context":     {PID: h.PID, Start: h.Start, FD: h.FD, Kind: KindSocket, Object: 1},
	} {
		if now, err := (Live{}).Swap(handle, Params{}, Params{Prefer: true}); !errors.Is(err, ErrVanished) {
			t.Errorf("%s: %v, %v, want ErrVanished", name, now, err)
		}
	}
	if got, err := (Live{}).Get(h); err != nil || got != (Params{}) {
		t.Errorf("the context is at %v, %v", got, err)
	}
}

// openDescriptors lists the test's own.
func openDescriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if target, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && !strings.HasPrefix(target, "/proc/") {
			out = append(out, target)
		}
	}
	return out
}

func TestNoDescriptorIsKept(t *testing.T) {
	requireParams(t)
	h := ownEpoll(t)
	before := openDescriptors(t)
	for i := range uint32(100) {
		if _, err := (Live{}).Swap(h, Params{Usecs: i}, Params{Usecs: i + 1}); err != nil {
			t.Fatal(err)
		}
		_, _ = Live{}.Get(Handle{PID: h.PID, FD: 0, Kind: KindEpoll})
	}
	if diff := cmp.Diff(before, openDescriptors(t)); diff != "" {
		t.Errorf("descriptors (-before +after):\n%s", diff)
	}
}

func TestSocketOptions(t *testing.T) {
	testbed.Require(t)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	h := Handle{PID: os.Getpid(), FD: fd, Kind: KindSocket, Object: st.Ino}
	original, err := Live{}.Get(h)
	if err != nil {
		t.Fatal(err)
	}
	want := Params{Usecs: original.Usecs + 30, Prefer: true}
	if now, err := (Live{}).Swap(h, original, want); err != nil || now != want {
		t.Fatalf("swap: %v, %v", now, err)
	}
	if usecs, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL); err != nil || usecs != int(want.Usecs) {
		t.Errorf("SO_BUSY_POLL is %d, %v", usecs, err)
	}
	var refused *Error
	if _, err := (Live{}).Swap(h, want, Params{Budget: 8}); !errors.As(err, &refused) || refused.Reason != ReasonNoBudget || refused.Remedy == "" {
		t.Errorf("a budget that nothing reads: %v, want a refusal", err)
	}
	if err := (Live{}).SocketBudgets(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("nothing reads budgets, and it says %v", err)
	}
	if now, err := (Live{}).Swap(h, want, original); err != nil || now != original {
		t.Errorf("back: %v, %v", now, err)
	}
}

// budgetReader lists nothing.
type budgetReader struct {
	*probe.Lister
	err error
}

func (budgetReader) List(context.Context, []int, bool) ([]Descriptor, error) { return nil, nil }

func (r budgetReader) SocketBudget(fd int) (uint16, error) {
	if r.err != nil {
		return 0, r.err
	}
	return r.Lister.SocketBudget(fd)
}

func TestSocketBudgetIsReadAndPutBack(t *testing.T) {
	testbed.Require(t)
	lister, missing := probe.OpenLister("")
	if missing != nil {
		t.Fatal(missing.Err)
	}
	defer lister.Close()
	l := Live{Lister: budgetReader{Lister: lister}}
	if err := l.SocketBudgets(); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	h := Handle{PID: os.Getpid(), FD: fd, Kind: KindSocket, Object: st.Ino}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL_BUDGET, 9); err != nil {
		t.Fatal(err)
	}
	original, err := l.Get(h)
	if err != nil || original.Budget != 9 {
		t.Fatalf("the application's own budget reads as %v, %v; want 9", original, err)
	}
	want := original
	want.Budget, want.Prefer = 300, true
	if now, err := l.Swap(h, original, want); err != nil || now != want {
		t.Errorf("swap: %v, %v, want %v", now, err, want)
	}
	if now, err := l.Swap(h, original, Params{}); err != nil || now != want {
		t.Errorf("swap from another budget: %v, %v, want %v untouched", now, err, want)
	}
	if now, err := l.Swap(h, want, original); err != nil || now != original {
		t.Errorf("back: %v, %v, want %v", now, err, original)
	}
	failed := errors.New("the iterator failed")
	if _, err := (Live{Lister: budgetReader{err: failed}}).Get(h); !errors.Is(err, failed) {
		t.Errorf("a budget that could not be read this time: %v, want %v", err, failed)
	}
}
