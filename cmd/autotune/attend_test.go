package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

// openOneQueue returns an actuator of a device with one queue, until the test
// ends.
func openOneQueue(t *testing.T) (*actuate.Host, *memkernel.Device) {
	t.Helper()
	system := memkernel.New()
	device := system.AddNamespace("n").AddDevice("dev0", 1, memkernel.Driver{})
	dir := t.TempDir()
	host, err := actuate.Open(t.Context(), actuate.Options{
		System: system, Namespace: actuate.NamespaceRef{Name: "n"}, Ifaces: []string{"dev0"},
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Close() })
	return host, device
}

// TestARunTellsOfRebindsAndYields has an actuator that meets another writer,
// gets its queue back, and meets an instance that was made anew.
func TestARunTellsOfRebindsAndYields(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		host, device := openOneQueue(t)
		q := device.Queue(0)
		ours := model.Settings{DeferHardIRQs: 5, GROFlushTimeout: 20 * time.Microsecond}
		other := ours
		other.DeferHardIRQs = 9
		apply := func(s model.Settings) { _, _ = host.Apply(t.Context(), model.Config{q: s}) }

		var out, errs bytes.Buffer
		a := &attendance{std: streams{out: &out, err: &errs}, asJSON: asJSON, name: func(model.Queue) string { return "dev0" }, host: host}
		var said []string
		window := func() {
			a.window(t.Context(), &model.Sample{})
			text := errs.String()
			if asJSON {
				text = out.String()
			}
			for line := range strings.Lines(text) {
				said = append(said, strings.TrimSuffix(line, "\n"))
			}
			out.Reset()
			errs.Reset()
		}
		apply(ours)
		window()
		device.Write(0, other)
		apply(model.Settings{})
		window()
		window()
		device.Write(0, ours)
		apply(model.Settings{DeferHardIRQs: 6, GROFlushTimeout: 20 * time.Microsecond})
		window()
		device.Down()
		device.Up()
		apply(ours)
		window()

		var got []string
		for _, line := range said {
			if !asJSON {
				switch {
				case strings.Contains(line, "left to another writer"):
					got = append(got, "yield true")
				case strings.Contains(line, "taken back"):
					got = append(got, "yield false")
				case strings.Contains(line, "made anew"):
					got = append(got, "rebind")
				default:
					t.Errorf("it said %q", line)
				}
				continue
			}
			var l struct {
				Kind    string
				Ifname  string
				Yielded bool
			}
			if err := json.Unmarshal([]byte(line), &l); err != nil || l.Ifname != "dev0" {
				t.Errorf("it printed %q: %v", line, err)
			}
			if l.Kind == "yield" {
				l.Kind = map[bool]string{true: "yield true", false: "yield false"}[l.Yielded]
			}
			got = append(got, l.Kind)
		}
		if diff := cmp.Diff([]string{"yield true", "yield false", "rebind"}, got); diff != "" {
			t.Errorf("said (-want +got):\n%s", diff)
		}
	}
}

func TestAProcessWithTheIDOfAnEndedOneIsReportedOn(t *testing.T) {
	host, _ := openOneQueue(t)
	procfs := filepath.Join(t.TempDir(), "proc")
	task := filepath.Join(procfs, "42", "task", "42")
	var out, errs bytes.Buffer
	a := &attendance{
		std: streams{out: &out, err: &errs}, asJSON: true, name: func(model.Queue) string { return "dev0" },
		host: host, watch: newReadinessWatch(procfs), asked: true,
	}
	receives := func(comm string) {
		if err := os.MkdirAll(task, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(task, "status"), []byte("Cpus_allowed_list:\t0\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for range readinessWindows {
			a.window(t.Context(), &model.Sample{Span: time.Second, Apps: []model.AppSample{{PID: 42, Comm: comm}}})
		}
	}
	receives("first")
	receives("first")
	if err := os.RemoveAll(filepath.Join(procfs, "42")); err != nil {
		t.Fatal(err)
	}
	a.window(t.Context(), &model.Sample{Span: time.Second})
	receives("second")
	var got []string
	for line := range strings.Lines(out.String()) {
		var summary readyLine
		if err := json.Unmarshal([]byte(line), &summary); err != nil {
			t.Fatal(err)
		}
		if summary.Kind == "readiness_summary" {
			got = append(got, summary.Comm)
		}
	}
	if diff := cmp.Diff([]string{"first", "second"}, got); diff != "" {
		t.Errorf("reported on (-want +got):\n%s%s", diff, &errs)
	}
}
