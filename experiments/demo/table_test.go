package demo

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the expected tables anew")

// golden compares with a file. Numbers in it are rounded to three or four
// digits, which is the tolerance.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWriteTable(t *testing.T) {
	quick := generated(1)
	quick.Run.Quick, quick.Verdict, quick.Run.Rounds = true, nil, 1
	rows := quick.Rows
	quick.Rows = nil
	for _, r := range rows {
		if r.Round == 1 {
			quick.Rows = append(quick.Rows, r)
		}
	}
	unknowns := generated(1)
	for i := range unknowns.Rows {
		r := &unknowns.Rows[i]
		r.TimerFires, r.ThreadPolls = nil, nil
		if r.Contender == "base" {
			r.CPUPerRequest = nil
		}
	}
	unknowns.judge()
	for name, result := range map[string]Result{
		"whole": generated(1), "interrupted": interrupted(1), "quick": quick, "unknowns": unknowns,
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := WriteTable(&b, result); err != nil {
				t.Fatal(err)
			}
			golden(t, "table-"+name+".txt", b.Bytes())
		})
	}
}

func TestThousands(t *testing.T) {
	for in, want := range map[float64]string{
		0: "0", 7: "7", 999.4: "999", 999.6: "1,000", 40000: "40,000", 1234567: "1,234,567", -1500: "-1,500", -0.2: "0",
	} {
		if got := thousands(in); got != want {
			t.Errorf("thousands(%v) = %q, want %q", in, got, want)
		}
	}
}
