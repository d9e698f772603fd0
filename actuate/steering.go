package actuate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"autotune/actuate/busypoll"
	"autotune/model"
)

// ErrNoContext says that no context of the selected applications can drive a
// queue: none holds sockets of its NAPI instance, or those that do also hold
// sockets of another.
var ErrNoContext = errors.New("no epoll context of the selected applications holds sockets of this NAPI instance alone")

// SteeringOptions say which applications follow the settings of queues.
type SteeringOptions struct {
	Host *Host
	// Selectors pick the applications; one that fits any of them is picked.
	Selectors []model.Selector
	// Report takes what is worth a line: applications that cannot be set, or
	// that were left to another writer. Each is said once.
	Report func(string)
}

// Steering makes applications follow the [model.Settings.BusyPoll] of the
// queues that they receive on, which a [Host] alone cannot set. It stands
// between a loop and its two ends: [Steering.Apply] in front of Host.Apply,
// and [Steering.Observe] behind the source of samples. It is not safe for
// concurrent use.
//
// An epoll context follows a queue while it holds sockets of that queue's NAPI
// instance alone. Contexts are set before a suspend timeout is written, and get
// their originals back after it was taken away.
type Steering struct {
	host      *Host
	apps      *Applications
	system    busypoll.System
	selectors []model.Selector
	report    func(string)
	said      map[string]bool

	// asked is what each queue was last set to.
	asked map[model.Queue]model.BusyPoll
	// suspended are the queues with a suspend timeout, by NAPI instance, and
	// queues those that an instance serves.
	suspended map[uint32]bool
	queues    map[uint32]model.Queue
}

// NewSteering returns a Steering; with a host that is ReadOnly it only
// observes.
func NewSteering(o SteeringOptions) *Steering {
	s := &Steering{
		host: o.Host, apps: o.Host.Applications(), system: o.Host.system.Processes(), selectors: o.Selectors, report: o.Report,
		said: map[string]bool{}, asked: map[model.Queue]model.BusyPoll{},
	}
	if s.report == nil {
		s.report = func(string) {}
	}
	return s
}

// Observe marks the selected applications of a sample, brings what it says of
// contexts up to date, and completes the settings read back by what the queues
// were last asked for. Contexts that have appeared since, of processes that
// started, forked or called exec, are set on the way.
func (s *Steering) Observe(ctx context.Context, sample *model.Sample) error {
	rows, err := s.system.List(ctx, nil, false)
	if err != nil {
		return fmt.Errorf("list applications: %w", err)
	}
	s.place(sample.Active, sample.NAPIIDs)
	if s.apps != nil {
		if err := s.follow(ctx, rows); err != nil {
			return err
		}
	}
	s.mark(sample, rows)
	s.overlay(sample.Active)
	return nil
}

// place takes note of which instance serves which queue.
func (s *Steering) place(active model.Config, ids map[model.Queue]uint32) {
	s.suspended, s.queues = map[uint32]bool{}, map[uint32]model.Queue{}
	for q, id := range ids {
		if id != 0 {
			s.queues[id] = q
			s.suspended[id] = active[q].IRQSuspendTimeout != 0
		}
	}
}

func (s *Steering) mark(sample *model.Sample, rows []busypoll.Descriptor) {
	contexts := map[int][]model.EpollContext{}
	for i := range rows {
		contexts[rows[i].PID] = append(contexts[rows[i].PID], epollContext(&rows[i]))
	}
	for i := range sample.Apps {
		app := &sample.Apps[i]
		app.Selected = s.selects(app.PID, app.Comm)
		app.Contexts = append([]model.EpollContext{}, contexts[app.PID]...)
	}
}

func epollContext(d *busypoll.Descriptor) model.EpollContext {
	c := model.EpollContext{FD: d.FD, Opaque: d.Opaque, NAPIIDs: d.NAPIIDs, MoreNAPIs: d.MoreNAPIs}
	if d.Params != nil {
		c.BusyPoll = time.Duration(d.Params.Usecs) * time.Microsecond
		c.Budget, c.Prefer = d.Params.Budget, d.Params.Prefer
	}
	return c
}

func (s *Steering) selects(pid int, comm string) bool {
	return pid != os.Getpid() && slices.ContainsFunc(s.selectors, func(sel model.Selector) bool {
		return sel.Matches(pid, comm, func() []string { return s.system.Cgroups(pid) })
	})
}

func (s *Steering) overlay(active model.Config) {
	for q, settings := range active {
		settings.BusyPoll = s.asked[q]
		active[q] = settings
	}
}

// Apply does what [Host.Apply] does, and has the applications follow. A queue
// that is to be suspended while no context can drive it gives a
// [model.QueueError] with [ErrNoContext] or with why none could be set, and
// keeps what it has.
func (s *Steering) Apply(ctx context.Context, want model.Config) (model.Config, error) {
	if s.apps == nil {
		return s.host.Apply(ctx, want)
	}
	// What ails single queues, Host.Apply says.
	napis, _ := s.host.NAPIs(ctx)
	active, ids := model.Config{}, map[model.Queue]uint32{}
	for _, n := range napis {
		active[n.Queue], ids[n.Queue] = n.Settings, n.ID
	}
	s.place(active, ids)
	rows, err := s.system.List(ctx, nil, false)
	if err != nil {
		return nil, fmt.Errorf("list applications: %w", err)
	}
	before := maps.Clone(s.asked)
	write := model.Config{}
	var refused []error
	refuse := func(q model.Queue, err error) {
		refused = append(refused, &model.QueueError{Queue: q, Op: "busy poll", Err: err})
		s.ask(q, before[q])
	}
	for q, settings := range want {
		if err := s.host.bounds.Check(model.Settings{BusyPoll: settings.BusyPoll}); err != nil {
			refuse(q, err)
			continue
		}
		s.ask(q, settings.BusyPoll)
		write[q] = settings
	}
	driven, err := s.turnOn(ctx, rows)
	if err != nil {
		return nil, err
	}
	for q, settings := range write {
		why := driven[ids[q]]
		if ids[q] == 0 {
			why = fmt.Errorf("it has no NAPI instance now: %w", ErrNoContext)
		}
		if settings.IRQSuspendTimeout != 0 && settings.BusyPoll.Prefer && why != nil {
			refuse(q, why)
			delete(write, q)
			continue
		}
		settings.BusyPoll = model.BusyPoll{}
		write[q] = settings
	}
	readback, err := s.host.Apply(ctx, write)
	if readback == nil {
		return nil, errors.Join(err, errors.Join(refused...))
	}
	for _, failed := range queueErrors(err) {
		var queue *model.QueueError
		if errors.As(failed, &queue) {
			s.ask(queue.Queue, before[queue.Queue])
		}
	}
	s.place(readback, ids)
	rows, listErr := s.system.List(ctx, nil, false)
	if listErr != nil {
		return readback, fmt.Errorf("list applications: %w", listErr)
	}
	if err := s.follow(ctx, rows); err != nil {
		return readback, err
	}
	s.overlay(readback)
	return readback, errors.Join(err, errors.Join(refused...))
}

func (s *Steering) ask(q model.Queue, b model.BusyPoll) {
	if b == (model.BusyPoll{}) {
		delete(s.asked, q)
		return
	}
	s.asked[q] = b
}

// target returns what a context is to be set to; false where it is to have what
// it had.
func (s *Steering) target(d *busypoll.Descriptor) (busypoll.Params, bool) {
	if len(d.NAPIIDs) != 1 || d.Mixed() || !s.selects(d.PID, d.Comm) {
		return busypoll.Params{}, false
	}
	q, tuned := s.queues[d.NAPIIDs[0]]
	asked, on := s.asked[q]
	return busypoll.FromModel(asked), tuned && on
}

func (s *Steering) wishesOn(rows []busypoll.Descriptor) []Wish {
	var wishes []Wish
	for i := range rows {
		// A preference outlives the suspension that relies on it.
		if to, on := s.target(&rows[i]); on && (to.Prefer || !s.suspended[rows[i].NAPIIDs[0]]) {
			wishes = append(wishes, Wish{rows[i], func(busypoll.Params) busypoll.Params { return to }})
		}
	}
	return wishes
}

// turnOn sets the contexts that are to follow a queue. It returns why no
// context drives an instance that is asked for busy polling, nil where one
// does.
func (s *Steering) turnOn(ctx context.Context, rows []busypoll.Descriptor) (map[uint32]error, error) {
	granted, err := s.apps.Apply(ctx, s.wishesOn(rows))
	if err != nil {
		return nil, err
	}
	s.tell(granted)
	why := map[uint32]error{}
	for id, q := range s.queues {
		if _, on := s.asked[q]; on {
			why[id] = fmt.Errorf("NAPI %d: %w", id, ErrNoContext)
		}
	}
	for _, g := range granted {
		id := g.Descriptor.NAPIIDs[0]
		switch {
		case g.Err == nil:
			why[id] = nil
		case why[id] != nil && !errors.Is(g.Err, busypoll.ErrVanished):
			why[id] = g.Err
		}
	}
	return why, nil
}

// follow sets all contexts to what is asked of their queues now, and gives all
// others that were set their originals, once their instances are not suspended.
func (s *Steering) follow(ctx context.Context, rows []busypoll.Descriptor) error {
	if err := s.apps.Forget(rows); err != nil {
		return err
	}
	wishes := s.wishesOn(rows)
	originals := s.apps.Originals()
	for i := range rows {
		d := &rows[i]
		original, set := originals[d.Key()]
		if _, on := s.target(d); !set || on || slices.ContainsFunc(d.NAPIIDs, func(id uint32) bool { return s.suspended[id] }) {
			continue
		}
		wishes = append(wishes, Wish{*d, func(busypoll.Params) busypoll.Params { return original }})
	}
	granted, err := s.apps.Apply(ctx, wishes)
	s.tell(granted)
	return err
}

// tell reports what could not be set, once for each process and reason, and
// what had to be put back first.
func (s *Steering) tell(granted []Granted) {
	for _, report := range s.apps.Recovered() {
		s.report(fmt.Sprintf("restored what another run had left:\n%s", strings.TrimSuffix(report.String(), "\n")))
	}
	for _, g := range granted {
		if g.Err == nil || errors.Is(g.Err, busypoll.ErrVanished) {
			continue
		}
		var denied *busypoll.Error
		line, once := g.Err.Error(), fmt.Sprint(g.Descriptor.Key())
		switch {
		case errors.Is(g.Err, model.ErrForeignWrite):
			line += "; left to whoever set it"
		case errors.As(g.Err, &denied):
			once = fmt.Sprint(g.Descriptor.PID, denied.Reason)
		}
		if !s.said[once] {
			s.said[once] = true
			s.report(line)
		}
	}
}
