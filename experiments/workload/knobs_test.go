//go:build linux

package workload_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"autotune/actuate/netdev"
	"autotune/experiments/testbed"
)

// setting is what a bed's NAPI instances are set to.
type setting struct {
	name         string
	deferHardIRQ uint32
	flush        time.Duration
}

func base() setting { return setting{name: "base"} }

func deferred(flush time.Duration) setting {
	return setting{name: "flush=" + flush.String(), deferHardIRQ: 100, flush: flush}
}

// apply sets the server's NAPI instances and checks that it took.
func (s setting) apply(tb testing.TB, bed *testbed.Bed) {
	tb.Helper()
	err := bed.Server().Do(func() (err error) {
		client, err := netdev.New(netdev.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		napis, err := client.NAPIs(bed.Server().Ifindex)
		if err != nil {
			return err
		}
		for _, napi := range napis {
			update := netdev.NAPIUpdate{DeferHardIRQs: &s.deferHardIRQ, GROFlushTimeout: &s.flush}
			if err := client.SetNAPI(napi.ID, update); err != nil {
				return err
			}
			got, err := client.NAPI(bed.Server().Ifindex, napi.ID)
			if err != nil {
				return err
			}
			if settings, ok := got.Settings(); !ok || settings.DeferHardIRQs != s.deferHardIRQ || settings.GROFlushTimeout != s.flush {
				return fmt.Errorf("NAPI %d reads back %v", napi.ID, settings)
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("set %s: %v", s.name, err)
	}
}
