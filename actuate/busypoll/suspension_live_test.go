package busypoll

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"autotune/actuate/netdev"
	"autotune/experiments/testbed"

	"golang.org/x/sys/unix"
)

const (
	receivePort = 7300
	// transfer is what is sent, as in the kernel's own self-test of busy
	// polling.
	transfer = 1 << 20
	// receiveAddr tells the receiver its address.
	receiveAddr = "BUSYPOLL_TEST_ADDR"
)

// receive accepts one connection and reads it to its end by epoll, then prints
// the bytes' checksum.
func receive() error {
	epoll, err := unix.EpollCreate1(0)
	if err != nil {
		return err
	}
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	addr := [4]byte(net.ParseIP(os.Getenv(receiveAddr)).To4())
	if err := unix.Bind(listener, &unix.SockaddrInet4{Addr: addr, Port: receivePort}); err != nil {
		return err
	}
	if err := unix.Listen(listener, 1); err != nil {
		return err
	}
	fmt.Println(epoll)
	conn, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK)
	if err != nil {
		return err
	}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, conn, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(conn)}); err != nil {
		return err
	}
	sum := sha256.New()
	var events [8]unix.EpollEvent
	buf := make([]byte, 4096)
	for {
		n, err := unix.EpollWait(epoll, events[:], 20_000)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case n == 0:
			return errors.New("nothing came for 20 s")
		}
		size, err := unix.Read(conn, buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
		case err != nil:
			return err
		case size == 0:
			fmt.Printf("%x\n", sum.Sum(nil))
			return nil
		default:
			_, _ = sum.Write(buf[:size])
		}
	}
}

// TestBytesArriveWholeThroughABusyPollingReceiver is the scenario of the
// kernel's self-test (tools/testing/selftests/net/busy_poll_test.sh): a
// megabyte through a receiver that busy polls, with and without suspension. The
// receiver is made to from outside.
func TestBytesArriveWholeThroughABusyPollingReceiver(t *testing.T) {
	for _, tt := range []struct {
		name    string
		suspend time.Duration
	}{
		{"deferral only", 0},
		{"suspension", 20 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testbed.Require(t)
			bed, err := testbed.New(t.Context(), testbed.Options{Prefix: "busypoll", Threaded: true, ClientCPU: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer bed.Close()
			setSuspension(t, bed, tt.suspend)
			want := sha256.Sum256(random(transfer))
			if got := transferThrough(t, bed); got != fmt.Sprintf("%x", want) {
				t.Errorf("checksum %s, sent %x", got, want)
			}
		})
	}
}

// setSuspension sets the bed's only NAPI as the self-test does.
func setSuspension(t *testing.T, bed *testbed.Bed, suspend time.Duration) {
	t.Helper()
	err := bed.Server().Do(func() error {
		client, err := netdev.New(netdev.Options{})
		if err != nil {
			return err
		}
		defer client.Close()
		napis, err := client.NAPIs(bed.Server().Ifindex)
		if err != nil || len(napis) != 1 {
			return fmt.Errorf("%d NAPI instances: %w", len(napis), err)
		}
		deferHard, flush := uint32(100), 50*time.Microsecond
		return client.SetNAPI(napis[0].ID, netdev.NAPIUpdate{DeferHardIRQs: &deferHard, GROFlushTimeout: &flush, IRQSuspendTimeout: &suspend})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// random returns the same bytes each time.
func random(n int) []byte {
	var seed [32]byte
	seed[0] = 7
	data := make([]byte, n)
	_, _ = rand.NewChaCha8(seed).Read(data)
	return data
}

// transferThrough sends the bytes and returns the checksum of what arrived.
func transferThrough(t *testing.T, bed *testbed.Bed) string {
	t.Helper()
	cmd := helper(t, "receive", nil)
	cmd.Env = append(cmd.Env, receiveAddr+"="+bed.Server().Addr.String())
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Server().Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	out := bufio.NewReader(stdout)
	h := Handle{PID: cmd.Process.Pid, Kind: KindEpoll}
	if _, err := fmt.Fscanln(out, &h.FD); err != nil {
		t.Fatal(err)
	}
	busy := Params{Usecs: 50, Budget: 16, Prefer: true}
	if now, err := (Live{}).Swap(h, Params{}, busy); err != nil || now != busy {
		t.Fatalf("set: %v, %v", now, err)
	}
	var conn net.Conn
	if err := bed.Client().Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", net.JoinHostPort(bed.Server().Addr.String(), strconv.Itoa(receivePort)), 5*time.Second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Write(random(transfer))
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	line, err := out.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
