package bpf_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What make generate wrote last was made of this source by these flags: whoever
// edits a program and does not generate is told, with a compiler or without.
func TestCommittedObjectsAreOfThisSource(t *testing.T) {
	committed, err := os.ReadFile("generated.sha256")
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	lines := bufio.NewScanner(bytes.NewReader(committed))
	for lines.Scan() {
		hash, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok {
			t.Fatalf("generated.sha256: line %q", lines.Text())
		}
		want[name] = hash
	}
	got := make(map[string]string)
	for _, pattern := range []string{"gen.go", "*.h", "*.c", "*_bpfel.go", "*_bpfel.o"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatalf("no files match %s: %v", pattern, err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got[name] = fmt.Sprintf("%x", sha256.Sum256(data))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("run make generate and commit what it writes; hashes (-generated +found):\n%s", diff)
	}
}
