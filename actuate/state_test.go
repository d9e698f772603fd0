package actuate

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

func sampleState() (*baseline, *intent) {
	original := model.Settings{DeferHardIRQs: 1, GROFlushTimeout: 2, IRQSuspendTimeout: 3}
	intended := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: time.Millisecond}
	b := &baseline{
		Version: stateVersion, BootID: "boot-1", Namespace: namespaceIdentity{Inode: 7, NamespaceRef: NamespaceRef{Name: "n"}},
		Devices: []baselineDevice{{
			Ifname: "eth1", Ifindex: 2, MAC: "02:00:00:00:00:01", Defaults: &defaultsRecord{DeferHardIRQs: 1}, Scope: ScopeNAPI,
			Queues: []baselineQueue{{Index: 0, NAPIID: 65, Original: &original}},
		}},
	}
	in := &intent{Version: stateVersion, BootID: "boot-1", Queues: []intentQueue{{
		Queue: model.Queue{Netns: 7, Ifindex: 2}, NAPIID: 65, Confirmed: &original, Intended: &intended,
	}}}
	return b, in
}

func TestStateSurvivesTheDisk(t *testing.T) {
	s := store{dir: t.TempDir()}
	if _, _, err := s.load(); !errors.Is(err, errNoState) {
		t.Errorf("empty directory: %v", err)
	}
	base, in := sampleState()
	if err := errors.Join(s.save(baselineFile, base), s.save(intentFile, in)); err != nil {
		t.Fatal(err)
	}
	gotBase, gotIntent, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(base, gotBase); diff != "" {
		t.Errorf("baseline (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(in, gotIntent); diff != "" {
		t.Errorf("intent (-want +got):\n%s", diff)
	}
	if err := errors.Join(s.remove(intentFile), s.remove(baselineFile)); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 0 {
		t.Errorf("left after removal: %v, %v", left, err)
	}
}

func TestStateThatCannotBeTrustedSaysSo(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		change     func(string) string
		want       error
		text       string
	}{
		{"cut off", baselineFile, func(s string) string { return s[:len(s)/2] }, errStateContents, "by hand"},
		{"empty", baselineFile, func(string) string { return "" }, errStateContents, "by hand"},
		{"zeros, as after a power cut", intentFile, func(s string) string { return strings.Repeat("\x00", len(s)) }, errStateContents, "by hand"},
		{"another version", baselineFile, func(s string) string { return strings.Replace(s, `"version": 1`, `"version": 2`, 1) }, errStateVersion, "version that wrote it"},
		{"no version", intentFile, func(s string) string { return strings.Replace(s, `"version": 1,`, ``, 1) }, errStateContents, "no version"},
		{"an unknown field", baselineFile, func(s string) string { return strings.Replace(s, `"mac"`, `"max"`, 1) }, errStateContents, "max"},
		{"an original is missing", baselineFile, func(s string) string { return strings.Replace(s, `"original"`, `"Xoriginal"`, 1) }, errStateContents, "original"},
		{"null for an original", baselineFile, func(s string) string {
			at := strings.Index(s, `"original": {`)
			end := at + strings.Index(s[at:], "}") + 1
			return s[:at] + `"original": null` + s[end:]
		}, errStateContents, "incomplete"},
		{"a queue of a device that is set as a whole", baselineFile, func(s string) string { return strings.Replace(s, `"scope": "napi"`, `"scope": "device"`, 1) }, errStateContents, "scope"},
		{"an unknown scope", baselineFile, func(s string) string { return strings.Replace(s, `"scope": "napi"`, `"scope": ""`, 1) }, errStateContents, "scope"},
		{"something follows", intentFile, func(s string) string { return s + "{}" }, errStateContents, "follows"},
		{"another run's intent", intentFile, func(s string) string { return strings.Replace(s, "boot-1", "boot-2", 1) }, errStateContents, "boot ID"},
		{"a queue that is not in the baseline", intentFile, func(s string) string { return strings.Replace(s, "7:2:0", "7:2:1", 1) }, errStateContents, "7:2:1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := store{dir: t.TempDir()}
			base, in := sampleState()
			if err := errors.Join(s.save(baselineFile, base), s.save(intentFile, in)); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(s.path(tt.file))
			if err != nil {
				t.Fatal(err)
			}
			changed := tt.change(string(data))
			if changed == string(data) {
				t.Fatal("the test changes nothing")
			}
			if err := os.WriteFile(s.path(tt.file), []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			_, _, err = s.load()
			var stateErr *StateError
			if !errors.As(err, &stateErr) || !errors.Is(err, tt.want) || stateErr.Path != s.path(tt.file) {
				t.Fatalf("load: %v, want %v about %s", err, tt.want, tt.file)
			}
			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%q does not say %q", err, tt.text)
			}
		})
	}
	t.Run("the baseline is missing", func(t *testing.T) {
		s := store{dir: t.TempDir()}
		_, in := sampleState()
		if err := s.save(intentFile, in); err != nil {
			t.Fatal(err)
		}
		var stateErr *StateError
		if _, _, err := s.load(); !errors.As(err, &stateErr) {
			t.Errorf("load: %v", err)
		}
	})
}

// TestSavingIsAllOrNothing stops at every step of replacing a file.
func TestSavingIsAllOrNothing(t *testing.T) {
	type stop struct{}
	for n := 1; ; n++ {
		s := store{dir: t.TempDir()}
		first, _ := sampleState()
		if err := s.save(baselineFile, first); err != nil {
			t.Fatal(err)
		}
		second, _ := sampleState()
		second.BootID = "boot-2"
		calls := 0
		s.step = func(string) {
			if calls++; calls == n {
				panic(stop{})
			}
		}
		stopped := func() (stopped bool) {
			defer func() { stopped = recover() != nil }()
			if err := s.save(baselineFile, second); err != nil {
				t.Fatal(err)
			}
			return false
		}()
		got, _, err := s.load()
		if err != nil || got.BootID != "boot-1" && got.BootID != "boot-2" {
			t.Fatalf("stopped at step %d: %v, %v", n, got, err)
		}
		if !stopped {
			if n < 5 || got.BootID != "boot-2" {
				t.Errorf("%d steps, boot %q", n, got.BootID)
			}
			return
		}
	}
}

func FuzzDecodeState(f *testing.F) {
	dir := f.TempDir()
	base, in := sampleState()
	s := store{dir: dir}
	if err := errors.Join(s.save(baselineFile, base), s.save(intentFile, in)); err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{baselineFile, intentFile} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b baseline
		if err := decodeState(data, &b); err == nil && b.check() == nil {
			for _, d := range b.Devices {
				for _, q := range d.Queues {
					if q.Original == nil {
						t.Error("a baseline without original passes")
					}
				}
			}
		}
	})
}

func TestHolderOfALockIsFound(t *testing.T) {
	locks := "1: POSIX  ADVISORY  WRITE 11 00:1a:5 0 EOF\n" +
		"2: FLOCK  ADVISORY  WRITE 4242 00:1a:77 0 EOF\n" +
		"2: -> FLOCK  ADVISORY  WRITE 4243 00:1a:77 0 EOF\n" +
		"3: FLOCK  ADVISORY  WRITE 12 fd:00:77 0 EOF\n"
	for file, want := range map[string]int{"00:1a:77": 4242, "fd:00:77": 12, "00:1a:5": 0, "00:1a:7": 0} {
		if got := parseLocks(strings.NewReader(locks), file); got != want {
			t.Errorf("%s: %d, want %d", file, got, want)
		}
	}
}
