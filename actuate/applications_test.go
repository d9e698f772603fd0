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
	"autotune/actuate/busypoll"
	"autotune/actuate/memkernel"
	"autotune/actuate/placement"
	"autotune/model"

	"golang.org/x/sys/unix"
)

var preferred = busypoll.Params{Usecs: 0, Budget: 64, Prefer: true}

// computer is an in-memory system with applications and no device.
type computer struct {
	*memkernel.System
	t    *testing.T
	root string
}

func newComputer(t *testing.T) *computer {
	return &computer{System: memkernel.New(), t: t, root: t.TempDir()}
}

func (c *computer) state(name string) string { return filepath.Join(c.root, name) }

func (c *computer) run() string { return filepath.Join(c.root, "run") }

func (c *computer) open(state string) *actuate.Applications {
	c.t.Helper()
	a, err := actuate.OpenApplications(context.Background(), c.System, c.state(state), c.run())
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// set opens a state, has all contexts of the processes set, and closes it.
func (c *computer) set(state string, to busypoll.Params, processes ...*memkernel.Process) []actuate.Granted {
	c.t.Helper()
	a := c.open(state)
	granted, err := a.Apply(context.Background(), c.wishes(to, processes...))
	if err := errors.Join(err, a.Close()); err != nil {
		c.t.Fatal(err)
	}
	return granted
}

func (c *computer) wishes(to busypoll.Params, processes ...*memkernel.Process) []actuate.Wish {
	c.t.Helper()
	rows, err := c.Processes().List(context.Background(), nil, false)
	if err != nil {
		c.t.Fatal(err)
	}
	var wishes []actuate.Wish
	for _, d := range rows {
		for _, p := range processes {
			if p.PID == d.PID {
				wishes = append(wishes, actuate.Wish{Descriptor: d, To: func(busypoll.Params) busypoll.Params { return to }})
			}
		}
	}
	return wishes
}

func (c *computer) restore(state string) actuate.Report {
	c.t.Helper()
	report, err := actuate.RestoreOn(context.Background(), c.System, c.state(state), c.run())
	if err != nil {
		c.t.Fatal(err)
	}
	return report
}

func contextOutcomes(r actuate.Report) map[busypoll.Parameter]actuate.Outcome {
	out := map[busypoll.Parameter]actuate.Outcome{}
	for _, c := range r.Contexts {
		out[c.Parameter] = c.Outcome
	}
	return out
}

func TestWithoutAListingContextsAreKnownByNumber(t *testing.T) {
	c := newComputer(t)
	c.Applications.Opaque = true
	p, exits := c.Applications.Start("app"), c.Applications.Start("exits")
	fd := p.Open(7)
	exits.Open(7)
	c.set("s", preferred, p, exits)
	if p.Params(fd) != preferred {
		t.Fatalf("set to %v", p.Params(fd))
	}
	exits.Exit()
	if report := c.restore("s"); !report.Settled || p.Params(fd) != (busypoll.Params{}) {
		t.Errorf("left at %v: %v", p.Params(fd), report)
	}
}

func TestSettingTwiceKeepsTheFirstOriginal(t *testing.T) {
	c := newComputer(t)
	p := c.Applications.Start("app")
	fd := p.Open(7)
	c.set("s", preferred, p)
	late := p.Open(7)
	c.set("s", busypoll.Params{Usecs: 50, Budget: 16, Prefer: true}, p)
	if report := c.restore("s"); p.Params(fd) != (busypoll.Params{}) || p.Params(late) != (busypoll.Params{}) {
		t.Errorf("left at %v and %v: %v", p.Params(fd), p.Params(late), report)
	}
}

func TestSettingAfterARestartIsNoForeignWrite(t *testing.T) {
	c := newComputer(t)
	p := c.Applications.Start("app")
	p.Open(7)
	c.set("s", preferred, p)
	p.Exit()
	again := c.Applications.Start("app")
	fd := again.Open(7) // at the same address
	own := busypoll.Params{Usecs: 3}
	again.Write(fd, own)
	if granted := c.set("s", preferred, again); granted[0].Err != nil || again.Params(fd) != preferred {
		t.Errorf("%+v, context at %v", granted, again.Params(fd))
	}
	if report := c.restore("s"); !report.Settled || again.Params(fd) != own {
		t.Errorf("left at %v: %v", again.Params(fd), report)
	}
}

func TestForeignWriteYieldsTheContext(t *testing.T) {
	c := newComputer(t)
	p := c.Applications.Start("app")
	fd := p.Open(7)
	a := c.open("s")
	defer a.Close()
	apply := func() error {
		granted, err := a.Apply(context.Background(), c.wishes(preferred, p))
		if err != nil || len(granted) != 1 {
			t.Fatal(granted, err)
		}
		return granted[0].Err
	}
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	theirs := busypoll.Params{Usecs: 99}
	p.Write(fd, theirs)
	for range 2 {
		if err := apply(); !errors.Is(err, model.ErrForeignWrite) || p.Params(fd) != theirs {
			t.Fatalf("%v, and it is %v", err, p.Params(fd))
		}
	}
	// They put back what we left.
	p.Write(fd, preferred)
	if err := apply(); err != nil {
		t.Error(err)
	}
}

func TestTwoRunsNeverOwnOneProcess(t *testing.T) {
	c := newComputer(t)
	p, other := c.Applications.Start("app"), c.Applications.Start("other")
	fd := p.Open(7)
	other.Open(7)
	first, second := c.open("a"), c.open("b")
	if _, err := first.Apply(context.Background(), c.wishes(preferred, p)); err != nil {
		t.Fatal(err)
	}
	granted, err := second.Apply(context.Background(), c.wishes(busypoll.Params{Usecs: 9}, p, other))
	if err != nil {
		t.Fatal(err)
	}
	var locked *actuate.LockedError
	if !errors.As(granted[0].Err, &locked) || locked.PID != os.Getpid() || granted[1].Err != nil || p.Params(fd) != preferred {
		t.Errorf("%+v, and it is %v", granted, p.Params(fd))
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	// The first is over and has left its values: they are no originals.
	granted, err = second.Apply(context.Background(), c.wishes(busypoll.Params{Usecs: 9}, p))
	if err != nil || granted[0].Err != nil {
		t.Fatal(granted, err)
	}
	if recovered := second.Recovered(); len(recovered) != 1 || len(recovered[0].Contexts) != 3 {
		t.Errorf("recovered %v", recovered)
	}
	if *granted[0].From != (busypoll.Params{}) || p.Params(fd) != (busypoll.Params{Usecs: 9}) {
		t.Errorf("taken over from %v, now %v", *granted[0].From, p.Params(fd))
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	c.restore("b")
	if report := c.restore("a"); p.Params(fd) != (busypoll.Params{}) || !report.Empty() {
		t.Errorf("left at %v: %v", p.Params(fd), report)
	}
	if files, _ := filepath.Glob(filepath.Join(c.run(), "*")); len(files) != 0 {
		t.Errorf("locks left: %v", files)
	}
}

func TestRefusalOfOneProcessStopsNoOther(t *testing.T) {
	c := newComputer(t)
	p, other := c.Applications.Start("protected"), c.Applications.Start("app")
	p.Open(7)
	fd := other.Open(7)
	refusal := &busypoll.Error{Op: "pidfd_getfd", Reason: busypoll.ReasonUser, Err: unix.EPERM}
	c.Applications.Fault = func(op memkernel.ContextOp, h busypoll.Handle) error {
		if op == memkernel.OpContextSet && h.PID == p.PID {
			return refusal
		}
		return nil
	}
	granted := c.set("s", preferred, p, other)
	if !errors.Is(granted[0].Err, os.ErrPermission) || granted[1].Err != nil || other.Params(fd) != preferred {
		t.Errorf("%+v", granted)
	}
}

func TestNumberReusedInTheInstantOfTheWrite(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", killed), func(t *testing.T) {
			c := newComputer(t)
			p := c.Applications.Start("app")
			fd := p.Open(7)
			crashable := actuate.NewCrashableApplications(nil)
			if err := crashable.Open(c.System, c.state("s"), c.run()); err != nil {
				t.Fatal(err)
			}
			c.Applications.Fault = func(op memkernel.ContextOp, _ busypoll.Handle) error {
				switch op {
				case memkernel.OpContextSet:
					p.Open() // so that the address is another
					p.Close(fd)
					other := c.Applications.Start("takes the address")
					other.Open()
					p.Open(7)
				case memkernel.OpContextDone:
					if killed {
						panic(crash{})
					}
				default:
				}
				return nil
			}
			func() {
				defer func() {
					if r := recover(); r != nil && r != any(crash{}) {
						panic(r)
					}
				}()
				if _, err := crashable.Apps.Apply(context.Background(), c.wishes(preferred, p)); err != nil {
					t.Fatal(err)
				}
			}()
			crashable.Crash()
			c.Applications.Fault = nil
			if p.Params(fd) != preferred {
				t.Fatalf("the write went elsewhere: %v", p.Params(fd))
			}
			if report := c.restore("s"); p.Params(fd) != (busypoll.Params{}) {
				t.Errorf("left at %v: %v", p.Params(fd), report)
			}
		})
	}
}

func TestBaselineOfApplicationsAloneIsChecked(t *testing.T) {
	c := newComputer(t)
	p := c.Applications.Start("app")
	p.Open(7)
	c.set("s", preferred, p)
	path := filepath.Join(c.state("s"), "baseline.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(data), `"fd": 3`, `"fd": -3`, 1)
	if damaged == string(data) {
		t.Fatalf("no descriptor in %s", data)
	}
	if err := os.WriteFile(path, []byte(damaged), 0o600); err != nil {
		t.Fatal(err)
	}
	var unusable *actuate.StateError
	if _, err := actuate.RestoreOn(context.Background(), c.System, c.state("s"), c.run()); !errors.As(err, &unusable) {
		t.Errorf("restore: %v, want a StateError", err)
	}
}

func TestRebootForgetsApplications(t *testing.T) {
	c := newComputer(t)
	p := c.Applications.Start("app")
	fd := p.Open(7)
	c.set("s", preferred, p)
	c.Reboot()
	if report := c.restore("s"); !report.Settled || p.Params(fd) != preferred {
		t.Errorf("%v, and it is %v", report, p.Params(fd))
	}
}

// TestTakingOverCutShortAnywhereLosesNoOriginal kills a run at every step of
// taking an application over from another run, which then goes on, and a third
// takes over from that one.
func TestTakingOverCutShortAnywhereLosesNoOriginal(t *testing.T) {
	own := busypoll.Params{Usecs: 3}
	for fuse := 1; ; fuse++ {
		c := newComputer(t)
		p := c.Applications.Start("app")
		fd := p.Open(7)
		p.Write(fd, own)
		c.set("first", preferred, p)
		left := fuse
		crashable := actuate.NewCrashableApplications(func(string) {
			if left--; left == 0 {
				panic(crash{})
			}
		})
		if err := crashable.Open(c.System, c.state("second"), c.run()); err != nil {
			t.Fatal(err)
		}
		died := func() (died bool) {
			defer func() {
				if r := recover(); r != nil {
					if r != any(crash{}) {
						panic(r)
					}
					died = true
				}
			}()
			if _, err := crashable.Apps.Apply(context.Background(), c.wishes(busypoll.Params{Usecs: 10}, p)); err != nil {
				t.Fatal(err)
			}
			return false
		}()
		crashable.Crash()
		for i, state := range []string{"first", "third"} {
			to := busypoll.Params{Usecs: uint32(20 + i)}
			if granted := c.set(state, to, p); granted[0].Err != nil || p.Params(fd) != to {
				t.Fatalf("killed at step %d, then %s: %v, and it is %v", fuse, state, granted[0].Err, p.Params(fd))
			}
		}
		for _, state := range []string{"first", "second", "third"} {
			if report := c.restore(state); !report.Settled {
				t.Fatalf("killed at step %d: restore %s: %v", fuse, state, report)
			}
		}
		if p.Params(fd) != own {
			t.Fatalf("killed at step %d, left at %v, want %v", fuse, p.Params(fd), own)
		}
		if !died {
			if fuse < 10 {
				t.Errorf("only %d steps were tried", fuse)
			}
			return
		}
	}
}

// TestApplicationsKeepWhatAnotherRunHasPlaced has a state of which only the
// placement was written.
func TestApplicationsKeepWhatAnotherRunHasPlaced(t *testing.T) {
	system, placements := placeMachine()
	placements.Put(threadItem(8), "0-3")
	root := t.TempDir()
	options := placeOptions(root, "s")
	options.System = system
	host, err := actuate.Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := host.Place(t.Context(), []placement.Move{{Item: threadItem(8), To: "2"}}); err != nil {
		t.Fatal(err)
	}
	p := system.Applications.Start("app")
	fd := p.Open(7)
	c := &computer{System: system, t: t, root: root}
	if granted, err := host.Applications().Apply(t.Context(), c.wishes(preferred, p)); err != nil || granted[0].Err != nil {
		t.Fatal(granted, err)
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	if report := c.restore("s"); !report.Settled || report.Empty() || placements.All()[threadItem(8)] != "0-3" || p.Params(fd) != (busypoll.Params{}) {
		t.Errorf("the thread is on %v, the context at %v: %v", placements.All(), p.Params(fd), report)
	}

	if host, err = actuate.Open(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Place(t.Context(), []placement.Move{{Item: threadItem(8), To: "2"}}); err != nil {
		t.Fatal(err)
	}
	if err := host.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.open("s").Close(); err != nil {
		t.Fatal(err)
	}
	if report := c.restore("s"); len(report.Placements) != 1 || placements.All()[threadItem(8)] != "0-3" {
		t.Errorf("after applications were opened there: the thread is on %v: %v", placements.All(), report)
	}
}
