package actuate_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/actuate/memkernel"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

var suspending = model.Settings{
	DeferHardIRQs: 100, GROFlushTimeout: 20 * time.Microsecond, IRQSuspendTimeout: 20 * time.Millisecond,
	BusyPoll: model.BusyPoll{Budget: 64, Prefer: true},
}

// steered is a machine with a run whose applications named "app" follow it.
type steered struct {
	*machine
	t        *testing.T
	host     *actuate.Host
	steering *actuate.Steering
	reports  []string
	// log has the writes in their order.
	log []string
}

func newSteered(t *testing.T, queues int) *steered {
	t.Helper()
	s := &steered{machine: newMachine(t, queues, memkernel.Driver{}), t: t}
	host, err := actuate.Open(context.Background(), s.options("s"))
	if err != nil {
		t.Fatal(err)
	}
	s.host = host
	t.Cleanup(func() {
		if err := host.Close(); err != nil {
			t.Error(err)
		}
	})
	s.steering = actuate.NewSteering(actuate.SteeringOptions{
		Host: host, Selectors: []model.Selector{{Kind: model.SelectComm, Value: "app"}}, Report: func(line string) { s.reports = append(s.reports, line) },
	})
	s.Fault = func(op memkernel.Op) error {
		if op == memkernel.OpSetDone {
			s.log = append(s.log, fmt.Sprint("suspend ", s.device.Settings(0).IRQSuspendTimeout))
		}
		return nil
	}
	s.Applications.Fault = func(op memkernel.ContextOp, h busypoll.Handle) error {
		if op == memkernel.OpContextDone {
			now, err := s.Applications.Get(busypoll.Handle{PID: h.PID, Start: h.Start, FD: h.FD})
			if err == nil {
				s.log = append(s.log, fmt.Sprint("prefer ", now.Prefer))
			}
		}
		return nil
	}
	return s
}

// napi returns the ID behind a queue.
func (s *steered) napi(queue int) uint32 {
	s.t.Helper()
	napis, err := s.host.NAPIs(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return napis[queue].ID
}

func (s *steered) apply(want model.Config) (model.Config, error) {
	return s.steering.Apply(context.Background(), want)
}

// observe has a window pass, in which these processes were seen to receive.
func (s *steered) observe(processes ...*memkernel.Process) model.Sample {
	s.t.Helper()
	napis, err := s.host.NAPIs(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	sample := model.Sample{Active: model.Config{}, NAPIIDs: map[model.Queue]uint32{}, Apps: []model.AppSample{}}
	for _, n := range napis {
		sample.Active[n.Queue], sample.NAPIIDs[n.Queue] = n.Settings, n.ID
	}
	for _, p := range processes {
		sample.Apps = append(sample.Apps, model.AppSample{PID: p.PID, Comm: p.Comm})
	}
	if err := s.steering.Observe(context.Background(), &sample); err != nil {
		s.t.Fatal(err)
	}
	return sample
}

func TestContextsAreSetBeforeSuspensionAndPutBackAfter(t *testing.T) {
	s := newSteered(t, 1)
	app := s.Applications.Start("app")
	fd := app.Open(s.napi(0))
	app.Write(fd, busypoll.Params{Usecs: 5})
	q := s.device.Queue(0)
	readback, err := s.apply(model.Config{q: suspending})
	if err != nil || readback[q] != suspending {
		t.Fatalf("read back %v, %v, want %v", readback[q], err, suspending)
	}
	sample := s.observe(app)
	if sample.Active[q] != suspending {
		t.Errorf("the sample has %v", sample.Active[q])
	}
	deferral := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 20 * time.Microsecond}
	if readback, err = s.apply(model.Config{q: deferral}); err != nil || readback[q] != deferral {
		t.Fatalf("read back %v, %v, want %v", readback[q], err, deferral)
	}
	if got := app.Params(fd); got != (busypoll.Params{Usecs: 5}) {
		t.Errorf("the context is at %v", got)
	}
	order := slices.Compact(slices.Clone(s.log))
	if diff := cmp.Diff([]string{"prefer true", "suspend 0s", "suspend 20ms", "suspend 0s", "prefer false"}, order); diff != "" {
		t.Errorf("order of the writes (-want +got):\n%s", diff)
	}
}

func TestMixedContextIsNeverPreferred(t *testing.T) {
	s := newSteered(t, 2)
	app, alone := s.Applications.Start("app"), s.Applications.Start("app")
	mixed, single := app.Open(s.napi(0), s.napi(1)), alone.Open(s.napi(0))
	if _, err := s.apply(model.Config{s.device.Queue(0): suspending}); err != nil {
		t.Fatal(err)
	}
	if app.Params(mixed).Prefer || !alone.Params(single).Prefer {
		t.Fatalf("mixed %v, single %v", app.Params(mixed), alone.Params(single))
	}
	sample := s.observe(app, alone)
	if r := model.SuspensionReadiness(sample.Apps, s.napi(0)); r.Ready {
		t.Error("a queue with a mixed context may be suspended")
	}
	// A context that becomes mixed loses its preference with the suspension,
	// and not before.
	alone.Watch(single, s.napi(0), s.napi(1))
	s.observe(app, alone)
	if !alone.Params(single).Prefer {
		t.Error("the preference went while the queue is still suspended")
	}
	unsuspended := suspending
	unsuspended.IRQSuspendTimeout = 0
	if _, err := s.apply(model.Config{s.device.Queue(0): unsuspended}); err != nil {
		t.Fatal(err)
	}
	if alone.Params(single) != (busypoll.Params{}) {
		t.Errorf("a mixed context is at %v", alone.Params(single))
	}
}

func TestNothingIsSuspendedThatNoContextDrives(t *testing.T) {
	for _, tt := range []struct {
		name string
		// start makes the only application of the machine.
		start func(s *steered) *memkernel.Process
		want  error
	}{
		{"no application", func(*steered) *memkernel.Process { return nil }, actuate.ErrNoContext},
		{"one that was not selected", func(s *steered) *memkernel.Process {
			p := s.Applications.Start("other")
			p.Open(s.napi(0))
			return p
		}, actuate.ErrNoContext},
		{"an application whose queue cannot be listed", func(s *steered) *memkernel.Process {
			p := s.Applications.Start("app")
			p.Open(s.napi(0))
			s.device.Down()
			return p
		}, actuate.ErrNoContext},
		{"one on another queue", func(s *steered) *memkernel.Process {
			p := s.Applications.Start("app")
			p.Open(s.napi(1))
			return p
		}, actuate.ErrNoContext},
		{"one that cannot be reached", func(s *steered) *memkernel.Process {
			p := s.Applications.Start("app")
			p.Open(s.napi(0))
			s.Applications.Fault = func(op memkernel.ContextOp, h busypoll.Handle) error {
				if op == memkernel.OpContextSet {
					return &busypoll.Error{Handle: h, Op: "pidfd_getfd", Reason: busypoll.ReasonUser, Err: errRefused}
				}
				return nil
			}
			return p
		}, errRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSteered(t, 2)
			p := tt.start(s)
			q := s.device.Queue(0)
			readback, err := s.apply(model.Config{q: suspending})
			var failed *model.QueueError
			if !errors.Is(err, tt.want) || !errors.As(err, &failed) || failed.Queue != q {
				t.Errorf("%v, want a QueueError of %v with %v", err, q, tt.want)
			}
			if readback[q] != (model.Settings{}) || s.device.Settings(0) != (model.Settings{}) {
				t.Errorf("read back %v, set to %v", readback[q], s.device.Settings(0))
			}
			if p != nil {
				for _, fd := range p.Descriptors() {
					if p.Params(fd) != (busypoll.Params{}) {
						t.Errorf("context %d is at %v", fd, p.Params(fd))
					}
				}
			}
		})
	}
}

var errRefused = errors.New("refused")

func TestWhatAppearsFollowsInTheNextWindow(t *testing.T) {
	s := newSteered(t, 1)
	app := s.Applications.Start("app")
	app.Open(s.napi(0))
	if _, err := s.apply(model.Config{s.device.Queue(0): suspending}); err != nil {
		t.Fatal(err)
	}
	late := app.Open(s.napi(0))
	child := app.Fork()
	own := child.Open(s.napi(0))
	started := s.Applications.Start("app")
	fd := started.Open(s.napi(0))
	s.observe()
	for _, c := range []struct {
		p  *memkernel.Process
		fd int
	}{{app, late}, {child, own}, {started, fd}} {
		if !c.p.Params(c.fd).Prefer {
			t.Errorf("context %d of process %d does not prefer busy polling", c.fd, c.p.PID)
		}
	}
	// After exec it is another application.
	child.Exec("other")
	other := child.Open(s.napi(0))
	app.Exit()
	s.observe()
	if child.Params(other).Prefer {
		t.Error("a process that is not selected any more was set")
	}
	report, err := s.host.Restore(context.Background())
	if err != nil || !report.Settled || started.Params(fd) != (busypoll.Params{}) {
		t.Errorf("restore: %v, context at %v\n%v", err, started.Params(fd), report)
	}
	if err := s.host.Close(); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(s.root, "run", "process-*")); len(files) != 0 {
		t.Errorf("locks of processes left after the restore: %v", files)
	}
}

func TestForeignWriteToAContextIsReportedOnce(t *testing.T) {
	s := newSteered(t, 1)
	app := s.Applications.Start("app")
	fd := app.Open(s.napi(0))
	q := s.device.Queue(0)
	if _, err := s.apply(model.Config{q: suspending}); err != nil {
		t.Fatal(err)
	}
	theirs := busypoll.Params{Usecs: 77}
	app.Write(fd, theirs)
	for range 3 {
		if sample := s.observe(app); sample.Active[q] != suspending {
			t.Errorf("the queue reads %v", sample.Active[q])
		}
	}
	if app.Params(fd) != theirs || len(s.reports) != 1 || !strings.Contains(s.reports[0], "left to whoever set it") {
		t.Errorf("context at %v, reports %q", app.Params(fd), s.reports)
	}
	if report, err := s.host.Restore(context.Background()); err != nil || !report.Settled || app.Params(fd) != theirs {
		t.Errorf("restore: %v, context at %v\n%v", err, app.Params(fd), report)
	}
}

func TestCrashOfARunThatSteersIsUndoneByTheNext(t *testing.T) {
	m := newMachine(t, 1, memkernel.Driver{})
	c := actuate.NewCrashable(nil)
	if err := c.Open(context.Background(), m.System, m.options("a")); err != nil {
		t.Fatal(err)
	}
	napis, err := c.Host.NAPIs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	app := m.Applications.Start("app")
	fd := app.Open(napis[0].ID)
	steering := actuate.NewSteering(actuate.SteeringOptions{Host: &c.Host, Selectors: []model.Selector{{Kind: model.SelectAll}}})
	if _, err := steering.Apply(context.Background(), m.want(suspending)); err != nil {
		t.Fatal(err)
	}
	c.Crash()
	if !app.Params(fd).Prefer || m.device.Settings(0).IRQSuspendTimeout == 0 {
		t.Fatal("nothing was set")
	}
	host, err := actuate.Open(context.Background(), m.options("b"))
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if app.Params(fd) != (busypoll.Params{}) || m.device.Settings(0) != (model.Settings{}) {
		t.Errorf("context at %v, queue at %v", app.Params(fd), m.device.Settings(0))
	}
	if len(host.Recovered()) != 1 || len(host.Recovered()[0].Contexts) != 3 {
		t.Errorf("recovered %v", host.Recovered())
	}
}

func TestContextSharedWithAChildIsPutBackThere(t *testing.T) {
	for _, tt := range []struct {
		name string
		// crashed: the run is killed, and the parent exits after it.
		crashed bool
	}{{"by the run", false}, {"after a crash", true}} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, 1, memkernel.Driver{})
			c := actuate.NewCrashable(nil)
			if err := c.Open(context.Background(), m.System, m.options("a")); err != nil {
				t.Fatal(err)
			}
			napis, err := c.Host.NAPIs(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			parent := m.Applications.Start("app")
			fd := parent.Open(napis[0].ID)
			steering := actuate.NewSteering(actuate.SteeringOptions{Host: &c.Host, Selectors: []model.Selector{{Kind: model.SelectAll}}})
			if _, err := steering.Apply(context.Background(), m.want(suspending)); err != nil {
				t.Fatal(err)
			}
			child := parent.Fork()
			if !tt.crashed {
				parent.Exit()
			}
			sample := model.Sample{Active: m.want(suspending), NAPIIDs: map[model.Queue]uint32{napis[0].Queue: napis[0].ID}}
			if err := steering.Observe(context.Background(), &sample); err != nil {
				t.Fatal(err)
			}
			if tt.crashed {
				parent.Exit()
				c.Crash()
				m.restore(t, "a")
			} else {
				if _, err := c.Host.Restore(context.Background()); err != nil {
					t.Fatal(err)
				}
				if err := c.Host.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if child.Params(fd) != (busypoll.Params{}) {
				t.Errorf("the child's context is left at %v", child.Params(fd))
			}
		})
	}
}

func TestAddressOfAnExitedProcessIsNoOldContext(t *testing.T) {
	s := newSteered(t, 1)
	first := s.Applications.Start("app")
	first.Open(s.napi(0))
	q := s.device.Queue(0)
	if _, err := s.apply(model.Config{q: suspending}); err != nil {
		t.Fatal(err)
	}
	first.Exit()
	second := s.Applications.Start("app")
	fd := second.Open(s.napi(0)) // at the same address
	own := busypoll.Params{Usecs: 9}
	second.Write(fd, own)
	s.observe(second)
	if !second.Params(fd).Prefer || len(s.reports) != 0 {
		t.Errorf("context at %v, reports %q", second.Params(fd), s.reports)
	}
	if _, err := s.host.Restore(context.Background()); err != nil || second.Params(fd) != own {
		t.Errorf("%v, context at %v, want %v", err, second.Params(fd), own)
	}
}

func TestReadOnlySteeringOnlySelects(t *testing.T) {
	m := newMachine(t, 1, memkernel.Driver{})
	o := m.options("")
	o.ReadOnly = true
	host, err := actuate.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	napis, err := host.NAPIs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	app, other := m.Applications.Start("app"), m.Applications.Start("other")
	fd := app.Open(napis[0].ID)
	steering := actuate.NewSteering(actuate.SteeringOptions{Host: host, Selectors: []model.Selector{{Kind: model.SelectComm, Value: "app"}}})
	if _, err := steering.Apply(context.Background(), m.want(suspending)); err != nil {
		t.Fatal(err)
	}
	sample := model.Sample{
		Active: model.Config{napis[0].Queue: {}}, NAPIIDs: map[model.Queue]uint32{napis[0].Queue: napis[0].ID},
		Apps: []model.AppSample{{PID: app.PID, Comm: "app"}, {PID: other.PID, Comm: "other"}},
	}
	if err := steering.Observe(context.Background(), &sample); err != nil {
		t.Fatal(err)
	}
	want := []model.AppSample{
		{PID: app.PID, Comm: "app", Selected: true, Contexts: []model.EpollContext{{FD: fd, NAPIIDs: []uint32{napis[0].ID}}}},
		{PID: other.PID, Comm: "other", Contexts: []model.EpollContext{}},
	}
	if diff := cmp.Diff(want, sample.Apps); diff != "" {
		t.Errorf("applications (-want +got):\n%s", diff)
	}
	if app.Params(fd) != (busypoll.Params{}) {
		t.Errorf("the context was set to %v", app.Params(fd))
	}
}
