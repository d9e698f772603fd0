package probe

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const statLine = "77 (a ) (b 5) S 1 77 77 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 1 0 100 0 0\n"

func TestTaskTime(t *testing.T) {
	for _, tt := range []struct {
		name            string
		schedstat, stat string
		want            time.Duration
	}{
		{"nanoseconds", "123456789 55 7\n", statLine, 123456789},
		{"ticks where the kernel keeps no nanoseconds", "0 0 0\n", statLine, 1750 * time.Millisecond},
		{"ticks where there is no schedstat", "", statLine, 1750 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proc := newFakeProc(t)
			if tt.schedstat != "" {
				proc.write(t, "77/task/78/schedstat", []byte(tt.schedstat))
			}
			proc.write(t, "77/task/78/stat", []byte(tt.stat))
			got, err := taskTime(proc.root, 77, 78)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("CPU time %v, want %v", got, tt.want)
			}
		})
	}
	t.Run("a task that is gone", func(t *testing.T) {
		if _, err := taskTime(newFakeProc(t).root, 77, 78); !errors.Is(err, errNoTask) {
			t.Errorf("error %v, want %v", err, errNoTask)
		}
	})
	for _, stat := range []string{"", "77 noname S 1", "77 (x) S 1 2 3", "77 (x) S 1 77 77 0 -1 4194560 1 0 0 0 a 25 0"} {
		if got, err := parseStatTime([]byte(stat)); err == nil {
			t.Errorf("stat %q was read as %v, want an error", stat, got)
		}
	}
}

func TestTaskTimes(t *testing.T) {
	proc := newFakeProc(t)
	proc.write(t, "77/task/77/schedstat", []byte("100 0 1\n"))
	proc.write(t, "77/task/80/schedstat", []byte("30 0 1\n"))
	got := make(map[int]time.Duration)
	if err := taskTimes(proc.root, 77, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int]time.Duration{77: 100, 80: 30}, got); diff != "" {
		t.Errorf("threads (-want +got):\n%s", diff)
	}
	if err := taskTimes(proc.root, 78, got); !errors.Is(err, errNoTask) {
		t.Errorf("error %v, want %v", err, errNoTask)
	}
}

func TestThreadGrowth(t *testing.T) {
	last := map[int]time.Duration{1: 100, 2: 50, 3: 10}
	for _, tt := range []struct {
		name   string
		now    map[int]time.Duration
		want   time.Duration
		shares bool
	}{
		{"all go on", map[int]time.Duration{1: 110, 2: 50, 3: 30}, 30, true},
		{"one ends and one is new", map[int]time.Duration{1: 110, 2: 50, 4: 7}, 17, true},
		{"one goes back", map[int]time.Duration{1: 90, 2: 60}, 10, true},
		{"another process under the same ID", map[int]time.Duration{1: 5, 9: 1}, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := threadGrowth(last, maps.Clone(tt.now)); got != tt.want {
				t.Errorf("growth %v, want %v", got, tt.want)
			}
			if got := sharesThread(last, tt.now); got != tt.shares {
				t.Errorf("same process: %v, want %v", got, tt.shares)
			}
		})
	}
}

func FuzzParseStatTime(f *testing.F) {
	f.Add([]byte(statLine))
	f.Add([]byte("1 () )"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := parseStatTime(data); err == nil && got < 0 {
			t.Errorf("negative time %v", got)
		}
	})
}
