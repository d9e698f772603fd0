package trace

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

// writeSeries writes samples of one queue, an entry after each, and conditions
// after the seventh.
func writeSeries(t *testing.T, path string, rotation Rotation, samples int) (*Series, []model.Sample) {
	t.Helper()
	s, err := CreateSeries(path, testHeader(), Options{FlushEvery: -1}, rotation)
	if err != nil {
		t.Fatal(err)
	}
	source := newRealistic(5, 1)
	source.packets = 200
	var written []model.Sample
	for i := range samples {
		sample := source.next()
		written = append(written, sample)
		if err := s.Write(sample); err != nil {
			t.Fatal(err)
		}
		if err := s.WriteEntry(json.RawMessage(`{"n":1}`)); err != nil {
			t.Fatal(err)
		}
		if i == 6 {
			if err := s.WriteConditions(sample.At, Conditions{Devices: []Device{}, CPUs: []CPU{{CPU: 3}}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return s, written
}

func readParts(t *testing.T, paths []string) (samples []model.Sample, kinds map[Kind]int, r *Reader) {
	t.Helper()
	r, err := OpenParts(paths, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // only read
	kinds = map[Kind]int{}
	for record, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		kinds[record.Kind]++
		if record.Kind == KindSample {
			samples = append(samples, record.Sample)
		}
	}
	return samples, kinds, r
}

func TestThePartsOfASeriesAreTheWhole(t *testing.T) {
	for _, tt := range []struct {
		name     string
		rotation Rotation
		parts    int
	}{
		{"by age", Rotation{Age: 5 * time.Second}, 4},
		{"by size", Rotation{Size: 1}, 20},
		{"not yet", Rotation{Size: 1 << 30, Age: time.Hour}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, want := writeSeries(t, filepath.Join(t.TempDir(), "a.trace.zst"), tt.rotation, 20)
			paths, removed := s.Parts()
			if len(paths) != tt.parts || removed != 0 {
				t.Fatalf("%d parts, %d removed, want %d", len(paths), removed, tt.parts)
			}
			got, kinds, r := readParts(t, paths)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[Kind]int{KindSample: 20, KindJournal: 20, KindConditions: 1}, kinds); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if stats := r.Stats(); !stats.Ended || stats.Samples != 20 || stats.Others != 21 {
				t.Errorf("stats %+v", stats)
			}
			if stats := s.Stats(); stats.Written != (Gap{Samples: 20, Others: 21}) || stats.Lost != (Gap{}) {
				t.Errorf("writer stats %+v", stats)
			}
			if tt.parts > 1 {
				_, _, last := readParts(t, paths[len(paths)-1:])
				h := last.Header()
				if h.Part.Number != tt.parts-1 || len(h.Conditions.CPUs) != 1 || h.Conditions.CPUs[0].CPU != 3 {
					t.Errorf("the last part has %+v and %+v", h.Part, h.Conditions)
				}
			}
		})
	}
}

func TestTheOldestPartsMakeRoom(t *testing.T) {
	dir := t.TempDir()
	const keep = 12 << 10
	s, written := writeSeries(t, filepath.Join(dir, "a.trace.zst"), Rotation{Size: 3 << 10, Keep: keep}, 100)
	paths, removed := s.Parts()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if removed == 0 || len(files) != len(paths) || total > keep || total < keep/3 {
		t.Errorf("%d files of %d parts with %d bytes, %d removed", len(files), len(paths), total, removed)
	}
	got, _, r := readParts(t, paths)
	if first := r.Header().Part; int(first.Samples) != len(written)-len(got) || first.Number != removed {
		t.Errorf("%d samples are left of %d, and the first part says %+v", len(got), len(written), first)
	}
	if diff := cmp.Diff(written[len(written)-len(got):], got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPartsThatAreNotInOrderAreRefused(t *testing.T) {
	s, _ := writeSeries(t, filepath.Join(t.TempDir(), "a.trace.zst"), Rotation{Age: 5 * time.Second}, 20)
	other, _ := writeSeries(t, filepath.Join(t.TempDir(), "a.trace.zst"), Rotation{Age: 5 * time.Second}, 20)
	paths, _ := s.Parts()
	others, _ := other.Parts()
	for _, tt := range []struct {
		name  string
		paths []string
	}{
		{"one left out", []string{paths[0], paths[2]}},
		{"turned around", []string{paths[1], paths[0]}},
		{"one twice", []string{paths[0], paths[0]}},
		{"of another recording", []string{paths[0], others[1]}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := OpenParts(tt.paths, ReaderOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for {
				if _, err = r.Next(context.Background()); err != nil {
					break
				}
			}
			if !errors.Is(err, ErrMissing) {
				t.Errorf("got %v", err)
			}
		})
	}
	data, err := os.ReadFile(paths[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(paths[1], data[:len(data)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := OpenParts(paths, ReaderOptions{Salvage: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for _, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	// The last frame has the end and, before it, an entry.
	if n != 40 || len(r.Stats().Damaged) != 1 {
		t.Errorf("%d records salvaged, damage %v", n, r.Stats().Damaged)
	}
}

func TestAPartThatCannotBeginLeavesTheOneBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.trace.zst")
	if err := os.WriteFile(PartPath(path, 1), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := CreateSeries(path, testHeader(), Options{FlushEvery: -1}, Rotation{Age: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for i := range 30 {
		if err := s.Write(model.Sample{At: time.Duration(i) * time.Second}); errors.Is(err, fs.ErrExist) {
			failed++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	paths, _ := s.Parts()
	got, _, _ := readParts(t, paths)
	if failed != 3 || len(got) != 30 || len(paths) != 1 {
		t.Errorf("%d failures, %d samples in %v", failed, len(got), paths)
	}
}

func TestPartsAreNamedBeforeTheExtension(t *testing.T) {
	for path, want := range map[string]string{
		"/a.b/eth0.trace.zst": "/a.b/eth0.000007.trace.zst",
		"eth0.zst":            "eth0.000007.zst",
		"eth0":                "eth0.000007",
		"day.log":             "day.000007.log",
		".zst":                ".zst.000007",
	} {
		if got := PartPath(path, 7); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}
