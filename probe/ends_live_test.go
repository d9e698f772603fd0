package probe

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"autotune/experiments/testbed"

	"golang.org/x/sys/unix"
)

// brief is the role of a process that receives for a while and ends.
const (
	brief     = "brief"
	briefPort = 7300
)

// receiveBriefly runs the brief role: each datagram costs it a few milliseconds,
// in a thread that then ends, until one asks it to stop.
func receiveBriefly() error {
	addr := net.ParseIP(os.Getenv(addrVariable)).To4()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: briefPort, Addr: [4]byte(addr)}); err != nil {
		return err
	}
	fmt.Println("ready")
	buf := make([]byte, 64)
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || string(buf[:n]) == "stop" {
			return err
		}
		done := make(chan struct{})
		go spinInThread(5*time.Millisecond, done)
		<-done
	}
}

// shortLived is a process in the brief role.
type shortLived struct {
	cmd    *exec.Cmd
	client *net.UDPConn
}

func (b *bed) startBrief(t testing.TB) shortLived {
	t.Helper()
	p := shortLived{cmd: roleCommand(brief)}
	p.cmd.Env = append(p.cmd.Env, addrVariable+"="+b.Server().Addr.String())
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Server().Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("receiver: %q, %v", line, err)
	}
	if err := b.Client().Do(func() (err error) {
		p.client, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: b.Server().Addr.AsSlice(), Port: briefPort})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.client.Close() })
	return p
}

func (p shortLived) send(t testing.TB, text string, n int) {
	t.Helper()
	for range n {
		if _, err := p.client.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// end waits for the end, and returns all the CPU time that the process took.
func (p shortLived) end(t testing.TB) time.Duration {
	t.Helper()
	p.send(t, "stop", 1)
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// Processes that are born, receive and end: what they took adds up to what the
// kernel tells their parent, and every window has a cost.
func TestTheCPUTimeOfProcessesThatComeAndGoIsKnown(t *testing.T) {
	attempt(t, func(t testing.TB) error {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		s := b.open(t, Options{Interval: 400 * time.Millisecond})
		took, told := make(map[int]time.Duration), make(map[int]time.Duration)
		var windows int
		window := func() error {
			windows++
			sample := next(t, s)
			for _, app := range sample.Apps {
				told[app.PID] += app.CPU
			}
			if sample.AppsUnknown != 0 {
				return fmt.Errorf("window %d: CPU time of %d processes is not known", windows, sample.AppsUnknown)
			}
			return nil
		}
		if err := window(); err != nil {
			return err
		}
		// One that ends in the window in which it was born, and one that lives on.
		first := b.startBrief(t)
		first.send(t, "work", 10)
		took[first.cmd.Process.Pid] = first.end(t)
		second := b.startBrief(t)
		second.send(t, "work", 10)
		if err := window(); err != nil {
			return err
		}
		second.send(t, "work", 10)
		if err := window(); err != nil {
			return err
		}
		second.send(t, "work", 10)
		took[second.cmd.Process.Pid] = second.end(t)
		for range 2 {
			if err := window(); err != nil {
				return err
			}
		}
		t.Logf("took %v, told %v", took, told)
		for pid, want := range took {
			if got := told[pid]; got < want*97/100 || got > want*103/100 {
				return fmt.Errorf("process %d took %v, and the samples tell %v", pid, want, got)
			}
		}
		return nil
	})
}

// spinInThread spins in a thread of its own, which ends with it.
func spinInThread(d time.Duration, done chan<- struct{}) {
	runtime.LockOSThread()
	for began := time.Now(); time.Since(began) < d; {
	}
	close(done)
}
