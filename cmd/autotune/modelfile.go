package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

// learns reports whether a policy has knowledge to keep in a file.
func learns(p model.Policy) bool {
	_, ok := p.(policy.Learner)
	return ok
}

// loadModel gives a policy what an earlier run wrote; a file that is not there
// is an earlier run that was not.
func loadModel(path string, p model.Policy) error {
	learner, ok := p.(policy.Learner)
	if !ok {
		return usageError(fmt.Errorf("--model: policy %q learns nothing that outlives a run", p.Name()))
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		// Whether it can be written is better known now than after the run.
		return probeModel(path)
	}
	if err != nil {
		return usageError(fmt.Errorf("--model: %w", err))
	}
	defer file.Close()
	if err := learner.Load(file); err != nil {
		return usageError(fmt.Errorf("--model %s: %w", path, err))
	}
	return nil
}

func probeModel(path string) error {
	probe, err := os.CreateTemp(filepath.Dir(path), ".model-*")
	if err != nil {
		return usageError(fmt.Errorf("--model: %w", err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// saveModel writes what a policy learned, all of it or nothing.
func saveModel(path string, p model.Policy) error {
	learner, ok := p.(policy.Learner)
	if !ok {
		return nil
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".model-*")
	if err != nil {
		return fmt.Errorf("write model: %w", err)
	}
	err = learner.Save(file)
	if err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write model: %w", errors.Join(err, os.Remove(file.Name())))
	}
	return nil
}

// modelEvery is how often a run writes its model: what a crash loses is no more
// than that.
const modelEvery = time.Minute

// keptModel is a source behind which the model is written between two windows,
// when nothing is being decided.
type keptModel struct {
	tuner.Source
	path string
	of   model.Policy
	warn io.Writer
	// written is when it was last, in the time of the samples; failed tells
	// that the last attempt failed, which is said once.
	written time.Duration
	failed  bool
}

// keepModel puts the writing of the model behind what wrap makes of a source.
func (c *runCmd) keepModel(wrap func(tuner.Source) tuner.Source, decide model.Policy, warn io.Writer) func(tuner.Source) tuner.Source {
	if c.Model == "" {
		return wrap
	}
	return func(source tuner.Source) tuner.Source {
		return &keptModel{Source: wrap(source), path: c.Model, of: decide, warn: warn}
	}
}

// Next implements [tuner.Source]. A model that cannot be written ends no run.
func (k *keptModel) Next(ctx context.Context) (model.Sample, error) {
	s, err := k.Source.Next(ctx)
	switch {
	case err != nil:
	case k.written == 0:
		k.written = s.At
	case s.At-k.written >= modelEvery:
		k.written = s.At
		saving := saveModel(k.path, k.of)
		if saving != nil && !k.failed {
			fmt.Fprintf(k.warn, "%v; it is tried again every %v\n", saving, modelEvery)
		}
		k.failed = saving != nil
	}
	return s, err
}
