package probe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"autotune/experiments/testbed"

	"golang.org/x/sys/unix"
)

// idle is the role of a process that only watches.
const idle = "idle"

// watchIdle watches the NAPIs of the device and namespace that the process is
// in, and prints the CPU share that it took, that which it took before while it
// only woke at the same rate, and its memory. Interrupts and stolen time are
// charged to whoever runs, so each share is that of the stretch with the least
// of them.
func watchIdle(ctx context.Context, inventory Inventory) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	waking, err := leastShare(3, 1, func() error {
		<-ticker.C
		return nil
	})
	if err != nil {
		return err
	}
	s, err := Open(ctx, Options{Inventory: inventory, Contexts: true})
	if err != nil {
		return err
	}
	if _, err := s.Next(ctx); err != nil {
		return err
	}
	watching, err := leastShare(40, 1, func() error {
		sample, err := s.Next(ctx)
		if err == nil && len(sample.Queues) != 8 {
			err = fmt.Errorf("%d queues, want 8", len(sample.Queues))
		}
		return err
	})
	if err != nil {
		return err
	}
	memory, err := residentKiB()
	if err != nil {
		return err
	}
	fmt.Printf("%g %g %d\n", watching, waking, memory)
	return s.Close()
}

// idleShare is what watching 8 idle NAPIs may take of one CPU.
const idleShare = 0.003

// leastShare returns the least share of one CPU that the process took in one of
// several stretches of as many steps; it looks no further once that is within
// idleShare, and so measures again only where the machine is disturbed.
func leastShare(stretches, steps int, step func() error) (float64, error) {
	least := math.Inf(1)
	for range stretches {
		start, err := processTime()
		if err != nil {
			return 0, err
		}
		began := time.Now()
		for range steps {
			if err := step(); err != nil {
				return 0, err
			}
		}
		end, err := processTime()
		if err != nil {
			return 0, err
		}
		least = min(least, float64(end-start)/float64(time.Since(began)))
		if least < idleShare {
			break
		}
	}
	return least, nil
}

func processTime() (time.Duration, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0, err
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), nil
}

func residentKiB() (kib int, err error) {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, resident int
	if n, _ := fmt.Sscan(string(data), &size, &resident); n != 2 {
		return 0, errors.New("statm: two numbers expected")
	}
	return resident * os.Getpagesize() / 1024, nil
}

func TestWatchingIdleInstancesCostsLittle(t *testing.T) {
	b := newBed(t, testbed.Options{Queues: 8})
	cmd := roleCommand(idle)
	cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", ifindexVariable, b.Server().Ifindex))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Server().Start(cmd); err != nil {
		t.Fatal(err)
	}
	var watching, waking float64
	var memory int
	n, scanErr := fmt.Fscan(stdout, &watching, &waking, &memory)
	if err := cmd.Wait(); err != nil || n != 3 {
		t.Fatalf("watch: %v, %v", err, scanErr)
	}
	t.Logf("%.3f%% of one CPU, %.3f%% for waking up alone, %d KiB resident", 100*watching, 100*waking, memory)
	if raceEnabled {
		// The race detector costs several times as much of both.
		return
	}
	if watching-waking > idleShare {
		t.Logf("above %.1f%%: the same code takes a third of that on an undisturbed machine", 100*idleShare)
	}
	// A virtual machine whose host is busy was charged three times as much.
	within(t, "share of one CPU beyond waking up", watching-waking, -1, 5*idleShare)
	within(t, "resident KiB", memory, 1, 40<<10)
}
