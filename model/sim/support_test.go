package sim

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"autotune/model"
)

func mustPreset(tb testing.TB, name string) *Preset {
	tb.Helper()
	p, err := LoadPreset(name)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func mustCase(tb testing.TB, name string) Case {
	tb.Helper()
	c, err := CaseByName(name)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// drain returns all samples until io.EOF.
func drain(tb testing.TB, s *Simulator) []model.Sample {
	tb.Helper()
	var out []model.Sample
	for {
		sample, err := s.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, sample)
	}
}

// published reads the table that the shipped preset was fitted to.
func published(tb testing.TB) []Cell {
	tb.Helper()
	f, err := os.Open("../../testdata/irqsuspend_v6_calibration.csv")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cells, err := ReadTable(f)
	if err != nil {
		tb.Fatal(err)
	}
	return cells
}

// shared opens a file of calibration data that is not part of the project, and
// skips the test, naming the file, where it is absent.
func shared(tb testing.TB, name string) *os.File {
	tb.Helper()
	f, err := os.Open(filepath.Join("../../../shared/data", name))
	if errors.Is(err, os.ErrNotExist) {
		tb.Skipf("absent: %s, beside the checkout, is not part of the project", name)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}
