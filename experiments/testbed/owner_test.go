//go:build linux

package testbed

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestNameSurvivesParsing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := name{
			prefix: rapid.StringMatching(`[a-z0-9]{1,32}`).Draw(t, "prefix"),
			owner: owner{
				pid:   rapid.IntRange(1, 1<<22).Draw(t, "pid"),
				start: rapid.Uint64().Draw(t, "start"),
			},
			id:   rapid.StringMatching(`[0-9a-f]{8}`).Draw(t, "id"),
			side: rapid.SampledFrom([]string{"server", "client"}).Draw(t, "side"),
		}
		got, ok := parseName(want.String())
		if !ok || got != want {
			t.Fatalf("%q parsed as %+v, %t; want %+v", want.String(), got, ok, want)
		}
	})
}

func TestForeignNamesAreNotTakenForBeds(t *testing.T) {
	for _, foreign := range []string{
		"",
		"blue",
		"autotune",
		"autotune-bed-1-2-0badcafe",
		"autotune-bed-1-2-0badcafe-middle",
		"autotune-bed-0-2-0badcafe-server",
		"autotune-bed--1-2-0badcafe-server",
		"autotune-bed-1-2-0badcafe-server-2",
		"my-autotune-bed-1-2-0badcafe-server",
		"autotune-bed-99999999999999999999-2-0badcafe-server",
		"autotune-bed-1-99999999999999999999-0badcafe-server",
	} {
		if got, ok := parseName(foreign); ok {
			t.Errorf("%q was taken for the bed %+v", foreign, got)
		}
	}
}

func TestStatIsReadPastAnyCommandName(t *testing.T) {
	type stat struct {
		Start uint64
		State string
	}
	const tail = " S 1 2 2 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 4711 1000 10"
	for _, test := range []struct {
		name, line string
		want       stat
		fails      bool
	}{
		{"a plain name", "17 (sleep)" + tail, stat{4711, "S"}, false},
		{"a name with spaces and parentheses", "17 (a) Z (b c)" + tail, stat{4711, "S"}, false},
		{"no name", "17 sleep S 1 2", stat{}, true},
		{"a line cut short", "17 (sleep) S 1 2", stat{}, true},
		{"a start time that is no number", "17 (sleep) S 1 2 2 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 soon 1", stat{}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			start, state, err := parseStat([]byte(test.line))
			if (err != nil) != test.fails {
				t.Fatalf("error %v, want one: %t", err, test.fails)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(test.want, stat{start, string(state)}); diff != "" {
				t.Errorf("stat (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("17 (sleep) S 1 2 2 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 4711 1000 10"))
	f.Add([]byte(") "))
	f.Fuzz(func(_ *testing.T, data []byte) { _, _, _ = parseStat(data) })
}

func TestOwnerIsTheProcessAndNotItsNumber(t *testing.T) {
	start, _, err := processStart(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !(owner{pid: os.Getpid(), start: start}).alive() {
		t.Error("this process is taken for dead")
	}
	if (owner{pid: os.Getpid(), start: start + 1}).alive() {
		t.Error("a process that reuses an owner's number is taken for the owner")
	}
}

func TestKernelVersion(t *testing.T) {
	for _, test := range []struct {
		release string
		want    bool
	}{
		{"6.13.0", true},
		{"6.18.44-generic", true},
		{"7.0-rc1", true},
		{"6.12.99", false},
		{"5.15.0", false},
		{"unknown", false},
	} {
		if got := atLeast(test.release, 6, 13); got != test.want {
			t.Errorf("%s is at least 6.13: %t, want %t", test.release, got, test.want)
		}
	}
}

func TestCPUMask(t *testing.T) {
	for cpu, want := range map[int]string{0: "1", 1: "2", 31: "80000000", 32: "1,00000000", 65: "2,00000000,00000000"} {
		if got := cpuMask(cpu); got != want {
			t.Errorf("CPU %d: mask %q, want %q", cpu, got, want)
		}
	}
}

func TestNAPIReplyIsDecoded(t *testing.T) {
	// From napi-get of a threaded veth: ifindex 2, id 8193, pid 1234, and an
	// attribute of a later kernel.
	reply := []byte{
		8, 0, 1, 0, 2, 0, 0, 0,
		8, 0, 2, 0, 1, 0x20, 0, 0,
		8, 0, 4, 0, 0xd2, 4, 0, 0,
		8, 0, 99, 0, 1, 2, 3, 4,
	}
	got, err := parseNAPI(reply)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(NAPI{ID: 8193, Thread: 1234}, got); diff != "" {
		t.Errorf("NAPI (-want +got):\n%s", diff)
	}
	if _, err := parseNAPI(reply[:13]); err == nil {
		t.Error("a reply cut inside an attribute was accepted")
	}
}
