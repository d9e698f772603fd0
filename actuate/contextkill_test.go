package actuate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/experiments/testbed"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// contextsHeld is how many epoll contexts a holder has.
const contextsHeld = 3

// holdContexts has epoll contexts and waits for its input to end.
func holdContexts() error {
	for range contextsHeld {
		fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
		if err != nil {
			return err
		}
		fmt.Println(fd)
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}

// holdersContexts are the contexts of processes in holdContexts, by number: the
// listing of their addresses is not this package's.
type holdersContexts []busypoll.Handle

// startHolder starts such a process.
func startHolder(t *testing.T, template *exec.Cmd) (handles holdersContexts) {
	t.Helper()
	cmd := exec.Command(template.Path)
	cmd.Env = template.Env
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
	start, err := busypoll.Live{}.Start(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for range contextsHeld {
		h := busypoll.Handle{PID: cmd.Process.Pid, Start: start, Kind: busypoll.KindEpoll}
		if _, err := fmt.Fscan(out, &h.FD); err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	return handles
}

func (h holdersContexts) params(t *testing.T) map[busypoll.Handle]busypoll.Params {
	t.Helper()
	out := map[busypoll.Handle]busypoll.Params{}
	for _, handle := range h {
		p, err := busypoll.Live{}.Get(handle)
		if err != nil {
			t.Fatal(err)
		}
		out[handle] = p
	}
	return out
}

// arguments names them for another process.
func (h holdersContexts) arguments() (out []string) {
	for _, handle := range h {
		out = append(out, strconv.Itoa(handle.PID), strconv.FormatUint(handle.Start, 10), strconv.Itoa(handle.FD))
	}
	return out
}

func parseHolders(arguments []string) (out holdersContexts, err error) {
	for ; len(arguments) >= 3; arguments = arguments[3:] {
		h := busypoll.Handle{Kind: busypoll.KindEpoll}
		_, pidErr := fmt.Sscan(arguments[0], &h.PID)
		_, startErr := fmt.Sscan(arguments[1], &h.Start)
		_, fdErr := fmt.Sscan(arguments[2], &h.FD)
		if err := errors.Join(pidErr, startErr, fdErr); err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// setContextsForever changes all parameters as fast as it can.
func setContextsForever(stateDir, runDir string, arguments []string) error {
	handles, err := parseHolders(arguments)
	if err != nil {
		return err
	}
	a, err := actuate.OpenApplications(context.Background(), nil, stateDir, runDir)
	if err != nil {
		return err
	}
	fmt.Println("open")
	rng := rand.New(rand.NewPCG(uint64(os.Getpid()), 1))
	for turn := 0; ; turn++ {
		var wishes []actuate.Wish
		for _, h := range handles {
			to := busypoll.Params{Usecs: rng.Uint32N(1000), Budget: uint16(rng.Uint32N(64)), Prefer: rng.IntN(2) == 0}
			wishes = append(wishes, actuate.Wish{Descriptor: busypoll.Descriptor{Handle: h}, To: func(busypoll.Params) busypoll.Params { return to }})
		}
		granted, err := a.Apply(context.Background(), wishes)
		for _, g := range granted {
			err = errors.Join(err, g.Err)
		}
		if err != nil {
			return err
		}
		if turn == 0 {
			fmt.Println("applied")
		}
	}
}

// TestLiveContextsAreExactAfterKillsAtRandomInstants kills a process that sets
// contexts of two others in a loop, and restores: by the command's own function
// or by the next process, which has another state directory every other time.
func TestLiveContextsAreExactAfterKillsAtRandomInstants(t *testing.T) {
	testbed.Require(t)
	const kills = 40
	template := child(t, "hold contexts")
	handles := append(startHolder(t, template), startHolder(t, template)...)
	for i, h := range handles {
		own := busypoll.Params{Usecs: uint32(2000 + i), Budget: uint16(i), Prefer: i%2 == 0}
		if now, err := (busypoll.Live{}).Swap(h, busypoll.Params{}, own); err != nil || now != own {
			t.Fatal(now, err)
		}
	}
	originals := handles.params(t)
	root := t.TempDir()
	runDir := filepath.Join(root, "run")
	setter := child(t, "set contexts")
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2))
	changed := 0
	for round := range kills {
		stateDir := filepath.Join(root, fmt.Sprintf("state%d", round%2))
		cmd := exec.Command(setter.Path, append([]string{stateDir, runDir}, handles.arguments()...)...)
		cmd.Env = setter.Env
		killAt(t, cmd, [4]string{"applied", "open", "applied", ""}[round%4], time.Duration(rng.Int64N(int64(25*time.Millisecond))))
		for _, dir := range []string{"state0", "state1"} {
			if _, err := actuate.LoadState(filepath.Join(root, dir)); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if cmp.Diff(originals, handles.params(t)) != "" {
			changed++
		}
		if rng.IntN(3) == 0 && round < kills-1 {
			continue // the next process has to restore, and finds the originals
		}
		for _, dir := range []string{"state0", "state1"} {
			report, err := actuate.Restore(context.Background(), filepath.Join(root, dir), runDir)
			if err != nil || !report.Settled {
				t.Fatalf("round %d: restore %s: %v\n%s", round, dir, err, report)
			}
		}
		if diff := cmp.Diff(originals, handles.params(t)); diff != "" {
			t.Fatalf("round %d: contexts after the restore (-original +now):\n%s", round, diff)
		}
	}
	t.Logf("%d of %d kills left something to restore", changed, kills)
	if changed < kills/4 {
		t.Errorf("only %d of %d kills left something to restore: this proves little", changed, kills)
	}
}
