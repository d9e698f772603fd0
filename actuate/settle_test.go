package actuate_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/model"
)

// TestACleanUpCutShortClaimsNothing kills a restore at each of its steps, and
// then has another run write what the first one had written. Restoring the
// first again must not take that for its own.
func TestACleanUpCutShortClaimsNothing(t *testing.T) {
	theirs := model.Settings{DeferHardIRQs: 3, GROFlushTimeout: 777 * time.Nanosecond}
	for stop := 1; ; stop++ {
		m := newMachine(t, 1, memkernel.Virtio())
		m.crashed(t, "a", wide)
		m.device.Write(0, theirs)
		steps := 0
		c := actuate.NewCrashable(func(string) {
			if steps++; steps == stop {
				panic(crash{})
			}
		})
		cut := func() (cut bool) {
			defer func() {
				if recover() != nil {
					c.Crash()
					cut = true
				}
			}()
			if _, err := c.RestoreOn(context.Background(), m.System, filepath.Join(m.root, "a"), filepath.Join(m.root, "run")); err != nil {
				t.Error(err)
			}
			return false
		}()
		m.crashed(t, "b", wide)
		for _, state := range []string{"a", "b"} {
			if report := m.restore(t, state); !report.Settled {
				t.Errorf("stopped at step %d: restore %s:\n%s", stop, state, report)
			}
		}
		if got := m.device.Settings(0); got != theirs {
			t.Errorf("stopped at step %d: left at %v, want %v", stop, got, theirs)
		}
		if !cut {
			if stop < 5 {
				t.Errorf("only %d steps", stop)
			}
			return
		}
	}
}
