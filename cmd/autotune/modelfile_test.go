package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"autotune/model/policy"
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
