//go:build linux

package workload

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
)

// quiet is how long a server says nothing more once its reply is complete.
const quiet = 200 * time.Millisecond

// rehearse prepares the server and returns the length of its reply, which it
// asks for twice.
func (x *Exchange) rehearse(addr netip.AddrPort) (size int, err error) {
	if len(x.Prepare) > 0 {
		if _, err := ask(addr, x.Prepare); err != nil {
			return 0, fmt.Errorf("prepare the server: %w", err)
		}
	}
	first, err := ask(addr, x.Request)
	if err != nil {
		return 0, fmt.Errorf("try a request: %w", err)
	}
	second, err := ask(addr, x.Request)
	if err != nil {
		return 0, fmt.Errorf("try a request again: %w", err)
	}
	switch {
	case !bytes.HasPrefix(first, x.Reply):
		return 0, fmt.Errorf("try a request: the reply %.60q does not begin with %q", first, x.Reply)
	case len(first) != len(second):
		return 0, fmt.Errorf("try a request: replies have %d and %d bytes, want the same length", len(first), len(second))
	}
	return len(first), nil
}

// ask sends a message over a new connection and returns all that comes back
// until the server is quiet.
func ask(addr netip.AddrPort, request []byte) (reply []byte, err error) {
	conn, err := net.DialTimeout("tcp", addr.String(), 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.Write(request); err != nil {
		return nil, err
	}
	buffer := make([]byte, maxMessageSize)
	wait := 5 * time.Second
	for {
		if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return nil, err
		}
		n, err := conn.Read(buffer)
		reply = append(reply, buffer[:n]...)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded) && len(reply) > 0:
			return reply, nil
		case err != nil:
			return nil, fmt.Errorf("after %d bytes: %w", len(reply), err)
		case len(reply) > maxMessageSize:
			return nil, fmt.Errorf("a reply of more than %d bytes", maxMessageSize)
		}
		wait = quiet
	}
}
