//go:build linux

package workload

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// answer listens on loopback and answers each read with what reply says of it.
func answer(t *testing.T, reply func(n int, request string) string) netip.AddrPort {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 1024)
			size, err := conn.Read(buffer)
			if err == nil {
				_, _ = io.WriteString(conn, reply(n, string(buffer[:size])))
			}
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

func TestAnExchangeIsRehearsed(t *testing.T) {
	for name, c := range map[string]struct {
		reply func(n int, request string) string
		size  int
		want  string
	}{
		"replies of one length":   {func(int, string) string { return "VALUE 12345" }, 11, ""},
		"another reply":           {func(int, string) string { return "ERROR" }, 0, `"ERROR" does not begin with "VALUE"`},
		"replies of two lengths":  {func(n int, _ string) string { return "VALUE" + strings.Repeat("x", n) }, 0, "want the same length"},
		"prepared before it asks": {func(n int, request string) string { return "VALUE" + map[bool]string{true: "", false: request}[n == 0] }, 8, ""},
	} {
		t.Run(name, func(t *testing.T) {
			x := Exchange{Prepare: []byte("set"), Request: []byte("get"), Reply: []byte("VALUE")}
			size, err := x.rehearse(answer(t, c.reply))
			switch {
			case c.want == "" && (err != nil || size != c.size):
				t.Errorf("got %d, %v, want %d", size, err, c.size)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
