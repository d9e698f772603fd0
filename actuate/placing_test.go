package actuate_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/actuate/placement"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// placeOptions open the device of a machine with one.
func placeOptions(root, state string) actuate.Options {
	return actuate.Options{
		Namespace: actuate.NamespaceRef{Name: "n"}, Ifaces: []string{"dev0"},
		StateDir: filepath.Join(root, state), RunDir: filepath.Join(root, "run"),
	}
}

func placeMachine() (*memkernel.System, *memkernel.Placements) {
	system := memkernel.New()
	system.AddNamespace("n").AddDevice("dev0", 1, memkernel.Driver{})
	return system, system.Placements()
}

func threadItem(tid int) placement.Item {
	return placement.Item{Kind: placement.KindThread, TID: tid, Started: uint64(tid)}
}

func TestPlacingIsUndone(t *testing.T) {
	irq := placement.Item{Kind: placement.KindIRQ, IRQ: 30}
	for _, tt := range []struct {
		name string
		// meanwhile happens between placing and restoring.
		meanwhile func(*memkernel.Placements)
		want      map[placement.Item]string
		outcomes  []actuate.Outcome
	}{
		{
			name:      "everything goes back",
			meanwhile: func(*memkernel.Placements) {},
			want:      map[placement.Item]string{threadItem(8): "0-3", irq: "0-1"},
			outcomes:  []actuate.Outcome{actuate.OutcomeRestored, actuate.OutcomeRestored},
		},
		{
			name:      "what another writer has moved since is its own",
			meanwhile: func(p *memkernel.Placements) { p.Put(irq, "3") },
			want:      map[placement.Item]string{threadItem(8): "0-3", irq: "3"},
			outcomes:  []actuate.Outcome{actuate.OutcomeForeign, actuate.OutcomeRestored},
		},
		{
			name:      "what another writer has put back is left",
			meanwhile: func(p *memkernel.Placements) { p.Put(irq, "0-1") },
			want:      map[placement.Item]string{threadItem(8): "0-3", irq: "0-1"},
			outcomes:  []actuate.Outcome{actuate.OutcomeUnchanged, actuate.OutcomeRestored},
		},
		{
			name:      "a thread that has ended needs nothing",
			meanwhile: func(p *memkernel.Placements) { p.End(threadItem(8)) },
			want:      map[placement.Item]string{irq: "0-1"},
			outcomes:  []actuate.Outcome{actuate.OutcomeRestored, actuate.OutcomeGone},
		},
	} {
		for _, how := range []string{"by the host", "after a crash"} {
			t.Run(tt.name+" "+how, func(t *testing.T) {
				system, placements := placeMachine()
				placements.Put(threadItem(8), "0-3")
				placements.Put(irq, "0-1")
				root := t.TempDir()
				host := actuate.NewCrashable(nil)
				if err := host.Open(t.Context(), system, placeOptions(root, "state")); err != nil {
					t.Fatal(err)
				}
				done, err := host.Host.Place(t.Context(), []placement.Move{{Item: threadItem(8), To: "2"}, {Item: irq, To: "2"}})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range done {
					if d.Err != nil {
						t.Errorf("%v: %v", d.Move, d.Err)
					}
				}
				if diff := cmp.Diff(map[placement.Item]string{threadItem(8): "2", irq: "2"}, placements.All()); diff != "" {
					t.Fatalf("placed (-want +got):\n%s", diff)
				}
				tt.meanwhile(placements)
				var report actuate.Report
				if how == "by the host" {
					report, err = host.Host.Restore(context.Background())
					err = errors.Join(err, host.Host.Close())
				} else {
					host.Crash()
					report, err = actuate.RestoreOn(context.Background(), system, filepath.Join(root, "state"), filepath.Join(root, "run"))
				}
				if err != nil || !report.Settled {
					t.Fatalf("restore: %v\n%s", err, report)
				}
				if diff := cmp.Diff(tt.want, placements.All()); diff != "" {
					t.Errorf("restored (-want +got):\n%s", diff)
				}
				var outcomes []actuate.Outcome
				for _, p := range report.Placements {
					outcomes = append(outcomes, p.Outcome)
				}
				if diff := cmp.Diff(tt.outcomes, outcomes); diff != "" {
					t.Errorf("outcomes (-want +got):\n%s", diff)
				}
				if left, err := filepath.Glob(filepath.Join(root, "state", "*.json*")); err != nil || len(left) > 0 {
					t.Errorf("state left behind: %v %v", left, err)
				}
			})
		}
	}
}

func TestPlacingYieldsToAnotherWriterAndSaysSoOnce(t *testing.T) {
	system, placements := placeMachine()
	placements.Put(threadItem(8), "0-3")
	host := actuate.NewCrashable(nil)
	if err := host.Open(t.Context(), system, placeOptions(t.TempDir(), "state")); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := host.Host.Close(); err != nil {
			t.Error(err)
		}
	}()
	place := func(to string) []actuate.Placed {
		t.Helper()
		done, err := host.Host.Place(t.Context(), []placement.Move{{Item: threadItem(8), To: to}})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	if done := place("1"); len(done) != 1 || done[0].Err != nil {
		t.Fatalf("placed %v", done)
	}
	if done := place("1"); done != nil {
		t.Errorf("placing again did %v, want nothing", done)
	}
	placements.Put(threadItem(8), "3")
	if done := place("1"); len(done) != 1 || !errors.Is(done[0].Err, model.ErrForeignWrite) || !strings.Contains(done[0].Err.Error(), "another writer") {
		t.Errorf("after another writer: %v, want %v", done, model.ErrForeignWrite)
	}
	if done := place("2"); done != nil {
		t.Errorf("said again: %v", done)
	}
	if got := placements.All()[threadItem(8)]; got != "3" {
		t.Errorf("the thread is on CPU %s, want the other writer's 3", got)
	}
	if _, err := host.Host.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := placements.All()[threadItem(8)]; got != "3" {
		t.Errorf("after the restore the thread is on CPU %s, want the other writer's 3", got)
	}
}

func TestNothingIsPlacedThatCouldNotBeRestored(t *testing.T) {
	system, placements := placeMachine()
	placements.Put(threadItem(8), "0-3")
	root := t.TempDir()
	host := actuate.NewCrashable(nil)
	if err := host.Open(t.Context(), system, placeOptions(root, "state")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = host.Host.Close() }()
	// A directory in the place of the file makes saving fail, also for root.
	if err := os.MkdirAll(filepath.Join(root, "state", "placement.json.tmp", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Host.Place(t.Context(), []placement.Move{{Item: threadItem(8), To: "1"}}); err == nil {
		t.Error("placed without a record")
	}
	if got := placements.All()[threadItem(8)]; got != "0-3" {
		t.Errorf("the thread is on CPU %s, want 0-3", got)
	}
}

// TestADeviceWhoseThreadCannotGoBackIsNotTuned has a crashed run, whose state
// another run finds by the device's lock.
func TestADeviceWhoseThreadCannotGoBackIsNotTuned(t *testing.T) {
	system := memkernel.New()
	device := system.AddNamespace("n").AddDevice("dev0", 1, memkernel.Driver{})
	placements := system.Placements()
	thread := placement.Item{Kind: placement.KindNAPIThread, Queue: device.Queue(0), TID: 8, Started: 8}
	placements.Put(thread, "0-3")
	root := t.TempDir()
	crashed := actuate.NewCrashable(nil)
	if err := crashed.Open(t.Context(), system, placeOptions(root, "first")); err != nil {
		t.Fatal(err)
	}
	if _, err := crashed.Host.Place(t.Context(), []placement.Move{{Item: thread, To: "2"}}); err != nil {
		t.Fatal(err)
	}
	crashed.Crash()
	options := placeOptions(root, "second")
	options.System = system
	system.Fault = func(op memkernel.Op) error {
		if op == memkernel.OpPlace {
			return model.ErrReadOnly
		}
		return nil
	}
	for range 2 {
		if host, err := actuate.Open(t.Context(), options); err == nil {
			t.Fatalf("opened: %v, while the thread is on CPU %s", host.Close(), placements.All()[thread])
		}
	}
	system.Fault = nil
	host, err := actuate.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Close(); err != nil {
		t.Error(err)
	}
	if got := placements.All()[thread]; got != "0-3" {
		t.Errorf("the thread is on CPU %s, want 0-3", got)
	}
}

// TestWhateverHappensThreadsGoBack kills a process that places at any step, in
// any state of restoring what the one before it left.
func TestWhateverHappensThreadsGoBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "placing")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = os.RemoveAll(root) }()
		system, placements := placeMachine()
		want := map[placement.Item]string{}
		for tid := 8; tid < 11; tid++ {
			want[threadItem(tid)] = fmt.Sprintf("%d-%d", tid, tid+1)
			placements.Put(threadItem(tid), want[threadItem(tid)])
		}
		pick := func() placement.Item {
			return threadItem(rapid.IntRange(8, 10).Draw(t, "thread"))
		}
		fuse := 0
		step := func(string) {
			if fuse--; fuse == 0 {
				panic(crash{})
			}
		}
		system.Fault = func(op memkernel.Op) error {
			if op == memkernel.OpPlace {
				step("")
			}
			return nil
		}
		serial := 100
		for range rapid.IntRange(1, 4).Draw(t, "processes") {
			state := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "state")
			host := actuate.NewCrashable(step)
			died := func() (died bool) {
				defer func() {
					fuse = 0
					if r := recover(); r != nil {
						if _, ok := r.(crash); !ok {
							panic(r)
						}
						host.Crash()
						died = true
					}
				}()
				fuse = rapid.IntRange(0, 60).Draw(t, "dies at step")
				if err := host.Open(context.Background(), system, placeOptions(root, state)); err != nil {
					t.Fatalf("open: %v", err)
				}
				if diff := cmp.Diff(want, placements.All()); diff != "" {
					t.Fatalf("a new run starts from (-want +got):\n%s", diff)
				}
				for range rapid.IntRange(0, 4).Draw(t, "moves") {
					serial++
					if _, err := host.Host.Place(context.Background(), []placement.Move{{Item: pick(), To: fmt.Sprint(serial)}, {Item: pick(), To: fmt.Sprint(serial + 1)}}); err != nil {
						t.Fatalf("place: %v", err)
					}
					serial++
					switch rapid.IntRange(0, 5).Draw(t, "another writer") {
					case 0:
						i := pick()
						if _, exists := want[i]; exists {
							serial++
							want[i] = fmt.Sprint(serial)
							placements.Put(i, want[i])
						}
					case 1:
						i := pick()
						delete(want, i)
						placements.End(i)
					}
				}
				if _, err := host.Host.Restore(context.Background()); err != nil {
					t.Fatalf("restore: %v", err)
				}
				if err := host.Host.Close(); err != nil {
					t.Fatalf("close: %v", err)
				}
				return false
			}()
			if died && rapid.Bool().Draw(t, "restore by command") {
				// It may have died before it settled what an earlier one left
				// in the other directory.
				for _, dir := range []string{"a", "b"} {
					if report, err := actuate.RestoreOn(context.Background(), system, filepath.Join(root, dir), filepath.Join(root, "run")); err != nil || !report.Settled {
						t.Fatalf("restore: %v\n%s", err, report)
					}
				}
			} else if died {
				continue // the next process has to restore, in whatever directory
			}
			if diff := cmp.Diff(want, placements.All()); diff != "" {
				t.Fatalf("after a restore (-want +got):\n%s", diff)
			}
		}
	})
}
