package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

func TestModelFileIsWrittenAndReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.json")
	p, err := policy.Parse("greybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := loadModel(path, p); err != nil {
		t.Fatalf("a file that is not there: %v", err)
	}
	if err := saveModel(path, p); err != nil {
		t.Fatal(err)
	}
	if err := loadModel(path, p); err != nil {
		t.Errorf("what was written: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 {
		t.Errorf("%v is left beside the model", left)
	}
}

func TestModelFileRefuses(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.json")
	if err := os.WriteFile(broken, []byte(`{"policy":"greybox","version":9,"queues":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ spec, path, want string }{
		"another version":       {"greybox", broken, "version 9; this program reads version 1"},
		"a directory":           {"greybox", dir, "is a directory"},
		"nowhere":               {"greybox", filepath.Join(dir, "no", "model.json"), "no such file or directory"},
		"a policy that forgets": {"aimd", broken, "learns nothing that outlives a run"},
	} {
		p, err := policy.Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		err = loadModel(c.path, p)
		var coded *exitError
		if !errors.As(err, &coded) || !strings.Contains(err.Error(), c.want) || coded.code != exitUsage {
			t.Errorf("%s: %v, want one of wrong use with %q", name, err, c.want)
		}
	}
}

// ticks is a source of empty samples, 20 s apart.
type ticks struct{ at time.Duration }

func (s *ticks) Next(context.Context) (model.Sample, error) {
	s.at += 20 * time.Second
	return model.Sample{At: s.at}, nil
}

func TestModelFileIsWrittenEveryMinute(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.json")
	p, err := policy.Parse("greybox")
	if err != nil {
		t.Fatal(err)
	}
	var warn bytes.Buffer
	c := runCmd{Model: path}
	source := c.keepModel(func(s tuner.Source) tuner.Source { return s }, p, &warn)(&ticks{})
	var written []int
	for window := range 8 {
		if _, err := source.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
		if os.Remove(path) == nil {
			written = append(written, window)
		}
	}
	if want := []int{3, 6}; !slices.Equal(written, want) {
		t.Errorf("written before windows %v, want %v", written, want)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if _, err := source.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(warn.String(), "write model"); n != 1 {
		t.Errorf("a directory that is gone was reported %d times, want once:\n%s", n, warn.String())
	}
}
