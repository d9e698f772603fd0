package placement

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestInterruptsAndSteeringByTheirFiles(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "irq/30/smp_affinity_list"), "3,0-1\n")
	write(t, filepath.Join(root, "irq/30/effective_affinity_list"), "1\n")
	write(t, filepath.Join(root, "dev/rx-1/rps_cpus"), "00000001,8000000f\n")
	h := Host{Procfs: root, Queue: func(q model.Queue) (*os.Root, string, error) {
		r, err := os.OpenRoot(filepath.Join(root, "dev"))
		return r, "rx-1", err
	}}
	irq, err := h.Interrupt(30)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(IRQ{Number: 30, Affinity: []int{3, 0, 1}, Effective: []int{1}}, irq); diff != "" {
		t.Errorf("interrupt (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		item      Item
		was, list string
		file      string
		text      string
	}{
		{Item{Kind: KindIRQ, IRQ: 30}, "0-1,3", "2", "irq/30/smp_affinity_list", "2"},
		{Item{Kind: KindRPS, Queue: model.Queue{Ifindex: 1, Index: 1}}, "0-3,31-32", "", "dev/rx-1/rps_cpus", "0"},
		{Item{Kind: KindRPS, Queue: model.Queue{Ifindex: 1, Index: 1}}, "", "0-3,31-32", "dev/rx-1/rps_cpus", "00000001,8000000f"},
	} {
		got, err := h.Read(tt.item)
		if err != nil || got != tt.was {
			t.Errorf("%v is set to %q, %v; want %q", tt.item, got, err, tt.was)
		}
		// A kernel file takes the place of what it held; a plain one would keep
		// what is longer.
		write(t, filepath.Join(root, tt.file), "")
		if err := h.Write(tt.item, tt.list); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(root, tt.file))
		if err != nil || string(text) != tt.text {
			t.Errorf("%s holds %q, %v; want %q", tt.file, text, err, tt.text)
		}
	}
	if _, err := h.Read(Item{Kind: KindIRQ, IRQ: 31}); !errors.Is(err, model.ErrGone) {
		t.Errorf("an interrupt that does not exist gives %v, want %v", err, model.ErrGone)
	}
}

func TestMasksReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cpus []int
		next := -1
		for range rapid.IntRange(0, 40).Draw(t, "CPUs") {
			next += rapid.IntRange(1, 9).Draw(t, "gap")
			cpus = append(cpus, next)
		}
		got, err := parseMask(formatMask(cpus))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cpus, got); diff != "" {
			t.Errorf("CPUs (-want +got):\n%s", diff)
		}
	})
}

func FuzzParseMask(f *testing.F) {
	for _, text := range []string{"0", "f", "00000001,8000000f\n", ",", "g", "fffffffff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		cpus, err := parseMask(text)
		if err != nil {
			return
		}
		again, err := parseMask(formatMask(cpus))
		if err != nil || !cmp.Equal(cpus, again) {
			t.Errorf("%q is %v, and read again %v (%v)", text, cpus, again, err)
		}
	})
}

func TestAThreadIsKnownByItsStartToo(t *testing.T) {
	cmd := exec.Command("sleep", "30")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	h := Host{Procfs: "/proc"}
	thread, err := h.Thread(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	item := Item{Kind: KindThread, TID: thread.TID, Started: thread.Started}
	one := model.FormatCPUList(thread.CPUs[:1])
	if err := h.Write(item, one); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Read(item); err != nil || got != one {
		t.Errorf("the thread is on %q, %v; want %q", got, err, one)
	}
	// It is nobody's NAPI thread, and an earlier thread with its ID is gone.
	if err := h.Write(Item{Kind: KindNAPIThread, TID: item.TID, Started: item.Started}, one); !errors.Is(err, model.ErrReadOnly) {
		t.Errorf("a process taken for a NAPI thread gives %v, want %v", err, model.ErrReadOnly)
	}
	earlier := item
	earlier.Started--
	if err := h.Write(earlier, one); !errors.Is(err, model.ErrGone) {
		t.Errorf("a thread that started at another time gives %v, want %v", err, model.ErrGone)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	ended = true
	if _, err := h.Read(item); !errors.Is(err, model.ErrGone) {
		t.Errorf("a thread that has ended gives %v, want %v", err, model.ErrGone)
	}
}
