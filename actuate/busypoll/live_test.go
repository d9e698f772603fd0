package busypoll

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"autotune/experiments/testbed"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary another process: "hold" has an epoll
// context and waits for its input to end, "reach" tries to get at one.
const roleVariable = "BUSYPOLL_TEST_ROLE"

func TestMain(m *testing.M) {
	var err error
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "rebind":
		err = rebind()
	case "receive":
		err = receive()
	case "hold":
		err = hold()
	default:
		err = reachFor(role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func hold() error {
	fd, err := unix.EpollCreate1(0)
	if err != nil {
		return err
	}
	fmt.Println(fd)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	return nil
}

// reachFor prints the reason why the context "PID FD" cannot be reached.
func reachFor(role string) error {
	h := Handle{Kind: KindEpoll}
	if _, err := fmt.Sscan(role, &h.PID, &h.FD); err != nil {
		return err
	}
	_, err := Live{}.Get(h)
	var denied *Error
	if errors.As(err, &denied) {
		fmt.Println(denied.Reason)
		return nil
	}
	fmt.Println(err)
	return nil
}

// helper prepares the test binary to run in a role, where any user may.
func helper(t *testing.T, role string, attr *syscall.SysProcAttr) *exec.Cmd {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "busypoll")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "helper")
	if err := errors.Join(os.WriteFile(path, self, 0o755), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Dir = dir
	cmd.Env = []string{roleVariable + "=" + role}
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	return cmd
}

// holder starts a process with an epoll context.
func holder(t *testing.T, attr *syscall.SysProcAttr) Handle {
	t.Helper()
	cmd := helper(t, "hold", attr)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	h := Handle{PID: cmd.Process.Pid, Kind: KindEpoll}
	if _, err := fmt.Fscan(out, &h.FD); err != nil {
		t.Fatal(err)
	}
	if h.Start, err = (Live{}).Start(h.PID); err != nil {
		t.Fatal(err)
	}
	return h
}

func asNobody() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

func inNamespaces(flags uintptr) *syscall.SysProcAttr {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	return &syscall.SysProcAttr{Cloneflags: flags, UidMappings: ids, GidMappings: ids}
}

func TestProcessesOfOthersAreReachedByRoot(t *testing.T) {
	testbed.Require(t)
	want := Params{Usecs: 40, Budget: 32, Prefer: true}
	for name, attr := range map[string]*syscall.SysProcAttr{
		"another user's":            asNobody(),
		"in another user namespace": inNamespaces(unix.CLONE_NEWUSER),
		"in another PID namespace":  {Cloneflags: unix.CLONE_NEWPID},
	} {
		t.Run(name, func(t *testing.T) {
			h := holder(t, attr)
			if now, err := (Live{}).Swap(h, Params{}, want); err != nil || now != want {
				t.Errorf("swap: %v, %v", now, err)
			}
		})
	}
}

func TestWhoMayNotReachIsToldWhy(t *testing.T) {
	testbed.Require(t)
	h := holder(t, nil)
	for _, tt := range []struct {
		name string
		attr *syscall.SysProcAttr
		want Reason
	}{
		{"another user", asNobody(), ReasonUser},
		{"root of another user namespace", inNamespaces(unix.CLONE_NEWUSER), ReasonUserNamespace},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, err := helper(t, fmt.Sprint(h.PID, " ", h.FD), tt.attr).Output()
			if got := strings.TrimSpace(string(out)); err != nil || got != string(tt.want) {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestProcessThatHasExitedHasVanished(t *testing.T) {
	requireParams(t)
	cmd := helper(t, "hold", nil)
	cmd.Stdin = strings.NewReader("x")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := (Live{}).Get(Handle{PID: cmd.Process.Pid, FD: 3, Kind: KindEpoll}); !errors.Is(err, ErrVanished) {
		t.Errorf("%v, want ErrVanished", err)
	}
}
