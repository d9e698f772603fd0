package actuate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"autotune/actuate"
	"autotune/actuate/placement"
	"autotune/experiments/testbed"
)

// virtioEntropy is VIRTIO_ID_RNG of include/uapi/linux/virtio_ids.h.
const virtioEntropy = "0x0004"

// entropyInterrupt returns the number of an interrupt that nothing waits for:
// that of a virtual machine's random numbers, which come when they are asked
// for. A veth has no interrupt, and those of the machine's own network and disk
// are not a test's to move.
func entropyInterrupt(t *testing.T) uint32 {
	t.Helper()
	kinds, err := filepath.Glob("/sys/bus/virtio/devices/*/device")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		text, err := os.ReadFile(kind)
		if err != nil || strings.TrimSpace(string(text)) != virtioEntropy {
			continue
		}
		name := filepath.Base(filepath.Dir(kind)) + "-input"
		found, err := filepath.Glob("/proc/irq/*/" + name)
		if err != nil || len(found) != 1 {
			continue
		}
		irq, err := strconv.ParseUint(filepath.Base(filepath.Dir(found[0])), 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(irq)
	}
	testbed.Skip(t, "no interrupt here that is free to be moved: needs a virtio entropy device")
	return 0
}

// delivered counts an interrupt by CPU.
func delivered(t *testing.T, irq uint32) []uint64 {
	t.Helper()
	data, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	var cpus int
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		if cpus == 0 {
			cpus = len(fields)
			continue
		}
		if fields[0] != fmt.Sprintf("%d:", irq) {
			continue
		}
		var counts []uint64
		for _, field := range fields[1 : cpus+1] {
			n, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			counts = append(counts, n)
		}
		return counts
	}
	t.Fatalf("interrupt %d is not counted", irq)
	return nil
}

// askForEntropy makes the device interrupt a few times; a single question may be
// answered by what it has sent before.
func askForEntropy(t *testing.T) {
	t.Helper()
	f, err := os.Open("/dev/hwrng")
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		_, readErr := f.Read(make([]byte, 64))
		err = errors.Join(err, readErr)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// awaitOnlyOn asks for interrupts until all that come do so on one CPU, and
// returns how many came where when they do not. One after a move still comes
// where it did, and is what carries the move out (irq_move_irq in
// kernel/irq/migration.c); the device may have answered the first questions
// without it, from what it had sent before.
func awaitOnlyOn(t *testing.T, irq uint32, cpu int) (taken []uint64) {
	t.Helper()
	const rounds = 10
	for range rounds {
		before := delivered(t, irq)
		askForEntropy(t)
		taken = delivered(t, irq)
		only := true
		for at := range taken {
			taken[at] -= before[at]
			only = only && (taken[at] > 0) == (at == cpu)
		}
		if only {
			return nil
		}
	}
	return taken
}

func TestAnInterruptIsMovedAndPutBackAfterACrash(t *testing.T) {
	b := bed(t, 1)
	irq := entropyInterrupt(t)
	item := placement.Item{Kind: placement.KindIRQ, IRQ: irq}
	file := fmt.Sprintf("/proc/irq/%d/smp_affinity_list", irq)
	affinity := func() string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	original := affinity()
	t.Cleanup(func() {
		if affinity() != original {
			_ = os.WriteFile(file, []byte(original), 0)
		}
	})
	for cpu := range len(delivered(t, irq)) {
		to := strconv.Itoa(cpu)
		if to == original {
			continue
		}
		options := liveOptions(t, b)
		host := actuate.NewCrashable(nil)
		if err := host.Open(t.Context(), actuate.Live{}, options); err != nil {
			t.Fatal(err)
		}
		done, err := host.Host.Place(t.Context(), []placement.Move{{Item: item, To: to}})
		if err != nil || len(done) != 1 || done[0].Err != nil || done[0].From != original || affinity() != to {
			t.Errorf("placed on CPU %s: %v, %+v, and it is on %s", to, err, done, affinity())
		}
		if taken := awaitOnlyOn(t, irq, cpu); taken != nil {
			t.Errorf("with the interrupt on CPU %d, CPUs took %v", cpu, taken)
		}
		host.Crash()
		report, err := actuate.RestoreOn(context.Background(), actuate.Live{}, options.StateDir, options.RunDir)
		if err != nil || !report.Settled || len(report.Placements) != 1 || report.Placements[0].Outcome != actuate.OutcomeRestored {
			t.Errorf("restore: %v\n%s", err, report)
		}
		if got := affinity(); got != original {
			t.Errorf("the interrupt is left on CPU %s, want %s", got, original)
		}
	}
}
