package actuate_test

import (
	"testing"

	"autotune/experiments/testbed"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"
)

// withRoute runs fn with a route netlink socket in the server's namespace.
func withRoute(t *testing.T, b *testbed.Bed, fn func(*rtnetlink.Conn) error) {
	t.Helper()
	err := b.Server().Do(func() error {
		conn, err := rtnetlink.Dial(nil)
		if err != nil {
			return err
		}
		if err := fn(conn); err != nil {
			return err
		}
		return conn.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func setLink(t *testing.T, b *testbed.Bed, up bool) {
	t.Helper()
	var flags uint32
	if up {
		flags = unix.IFF_UP
	}
	withRoute(t, b, func(conn *rtnetlink.Conn) error {
		return conn.Link.Set(&rtnetlink.LinkMessage{Index: uint32(b.Server().Ifindex), Flags: flags, Change: unix.IFF_UP})
	})
}

func deleteLink(t *testing.T, b *testbed.Bed) {
	t.Helper()
	withRoute(t, b, func(conn *rtnetlink.Conn) error { return conn.Link.Delete(uint32(b.Server().Ifindex)) })
}
