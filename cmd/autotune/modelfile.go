package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"autotune/model"
	"autotune/model/policy"
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
