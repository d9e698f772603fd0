package probe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"autotune/model"
)

// minInterval bounds the rate at which maps are read.
const minInterval = 10 * time.Millisecond

// maxSampleEvery bounds how few sockets are followed.
const maxSampleEvery = 1 << 16

// Source is the live source of samples. It is not safe for concurrent use.
type Source struct {
	kernel    kernel
	inventory Inventory
	missing   []Missing
	procfs    string
	clock     func() (time.Duration, error)
	ticker    *time.Ticker
	cpus      *cpuReader
	apps      *apps
	contexts  contextLister
	// counters is nil where the hardware counts nothing.
	counters *counters

	queues map[model.Queue]*queue
	free   []int
	last   reading
	now    reading
	at     time.Duration

	interval time.Duration
	throttle throttle
	// stamps is nil where no time stamps are used.
	stamps *stamper
	// events is nil when no single events are taken.
	events *eventTaker
	// What is sampled in the window under way.
	mask, salt, saltBefore, pollMask uint32

	listed     map[uint32][]model.EpollContext
	listedAt   time.Duration
	listedEver bool
}

// Open loads the programs, attaches what the host allows, and takes the
// baseline of the first window. The inventory must know at least one NAPI for
// samples to hold queues, but none at the start is no error: links may be down.
// Up to 64 queues, or twice as many as at the start, can be followed.
//
// The error wraps [ErrNoPolls] where polls cannot be observed, which leaves
// nothing to decide upon.
func Open(ctx context.Context, options Options) (*Source, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	possible, err := readPossibleCPUs(sysfsRoot)
	if err != nil {
		return nil, err
	}
	napis, napisErr := options.Inventory.NAPIs(ctx)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	loaded, err := loadPrograms(mapSizes{napis: slotsFor(len(napis)), cpus: cpuSlots(possible), ring: options.Events.ring()}, options)
	if err != nil {
		return nil, err
	}
	missing := loaded.missing
	var lister contextLister
	if options.Contexts {
		var lacking *Missing
		if lister, lacking = openContexts(options.Procfs); lacking != nil {
			missing = append(missing, *lacking)
		}
	}
	// Loading parsed the kernel's type information, which is megabytes.
	debug.FreeOSMemory()
	s, err := newSource(ctx, loaded, options, napis, napisErr, boottime)
	if err != nil {
		if lister != nil {
			err = errors.Join(err, lister.close())
		}
		return nil, errors.Join(err, loaded.close())
	}
	s.missing, s.contexts = missing, lister
	if s.stamps != nil && s.stamps.err != nil {
		s.missing = append(s.missing, Missing{Name: signalStamps, Lost: stampsLost, Err: s.stamps.err})
	}
	if options.NoCounters {
		return s, nil
	}
	if s.counters, err = openCounters(possible, hardwareEvents()); err != nil && !noCounters(err) {
		s.missing = append(s.missing, Missing{Name: signalCounters, Lost: countersLost, Err: advised(err)})
	}
	return s, nil
}

// sysfsRoot is where the kernel describes its CPUs.
const sysfsRoot = "/sys"

// slotsFor leaves room for queues that are added while the source is open.
func slotsFor(napis int) int { return max(64, 2*napis) }

// sampleMask returns the mask that selects one hash in every, rounded up to a
// power of two.
func sampleMask(every uint32) uint32 {
	if every <= 1 {
		return 0
	}
	return 1<<bits.Len32(every-1) - 1
}

// newSource starts the first window on a loaded kernel.
func newSource(ctx context.Context, k kernel, options Options, napis []model.NAPI, napisErr error, clock func() (time.Duration, error)) (*Source, error) {
	cpus, err := newCPUReader(options.Procfs)
	if err != nil {
		return nil, err
	}
	s := &Source{
		kernel:    k,
		inventory: options.Inventory,
		procfs:    options.Procfs,
		clock:     clock,
		cpus:      cpus,
		apps:      newApps(options.Procfs),
		queues:    make(map[model.Queue]*queue),
		interval:  options.Interval,
		throttle: throttle{
			budget:  time.Duration(max(0, options.Budget) * float64(time.Second)),
			sockets: sampleMask(options.SampleEvery),
		},
		salt: rand.Uint32(),
	}
	s.saltBefore, s.mask = s.salt, s.throttle.socketMask()
	for slot := k.slots() - 1; slot >= 0; slot-- {
		s.free = append(s.free, slot)
	}
	if err := k.followSockets(s.mask, s.salt, s.saltBefore); err != nil {
		return nil, err
	}
	if options.Clocks != nil {
		s.stamps = newStamper(options.Clocks, options.Interval)
	}
	if ring := k.ring(); ring != nil {
		s.events = newEventTaker(ring, *options.Events, options.Interval, k)
		if err := s.events.prepare(); err != nil {
			return nil, err
		}
	}
	if s.at, err = clock(); err != nil {
		return nil, err
	}
	if err := k.read(&s.last); err != nil {
		return nil, err
	}
	if err := s.endEvents(s.at, &s.last); err != nil {
		return nil, err
	}
	if _, err := cpus.sample(); err != nil {
		return nil, err
	}
	if _, _, err := s.match(napis, napisErr, &s.last); err != nil {
		return nil, err
	}
	for _, q := range s.queues {
		if _, err := q.threadTime(s.procfs); err != nil {
			return nil, err
		}
		if _, err := q.interruptGrowth(sysfsRoot, s.procfs); err != nil {
			return nil, err
		}
	}
	if err := s.compareClocks(ctx); err != nil {
		s.stamps.close()
		return nil, err
	}
	s.ticker = time.NewTicker(options.Interval)
	return s, nil
}

// Missing names the probes that do not work on this host and what samples lack
// because of it. The result belongs to the caller.
func (s *Source) Missing() []Missing { return slices.Clone(s.missing) }

// Close detaches and unloads the programs. The source cannot be used after it.
func (s *Source) Close() error {
	s.ticker.Stop()
	var err error
	if s.contexts != nil {
		err = s.contexts.close()
	}
	if s.counters != nil {
		err = errors.Join(err, s.counters.close())
	}
	if s.stamps != nil {
		s.stamps.close()
	}
	return errors.Join(err, s.kernel.close())
}

// Next waits for the end of the window under way and returns it. Span is the
// time since the end of the window before, which is longer than the interval
// when Next was called late.
//
// A queue whose NAPI instance was replaced in the window has no sample in it,
// nor has a process or CPU that appeared. Next returns ctx's error when that
// ends first; any other error means that the kernel or /proc could not be read.
func (s *Source) Next(ctx context.Context) (model.Sample, error) {
	cost, err := s.measureCost(ctx)
	if err != nil {
		return model.Sample{}, err
	}
	if err := s.await(ctx); err != nil {
		return model.Sample{}, err
	}
	if s.events != nil {
		if err := s.events.prepare(); err != nil {
			return model.Sample{}, err
		}
	}
	at, err := s.clock()
	if err != nil {
		return model.Sample{}, err
	}
	if err := s.kernel.read(&s.now); err != nil {
		return model.Sample{}, err
	}
	if err := s.endEvents(at, &s.now); err != nil {
		return model.Sample{}, err
	}
	cpus, err := s.cpus.sample()
	if err != nil {
		return model.Sample{}, err
	}
	if s.counters != nil {
		if err := s.counters.add(cpus); err != nil {
			return model.Sample{}, err
		}
	}
	napis, napisErr := s.inventory.NAPIs(ctx)
	if err := ctx.Err(); err != nil {
		return model.Sample{}, err
	}
	sample := model.Sample{
		At:      at,
		Span:    at - s.at,
		CPUs:    cpus,
		Lost:    grown(s.last.lost, s.now.lost),
		Active:  make(model.Config, len(napis)),
		NAPIIDs: make(map[model.Queue]uint32, len(napis)),
	}
	addInterrupts(sample.CPUs, s.kernel, s.last.cpus, s.now.cpus)
	for _, napi := range napis {
		sample.Active[napi.Queue] = napi.Settings
		sample.NAPIIDs[napi.Queue] = napi.ID
	}
	steady, refused, err := s.match(napis, napisErr, &s.now)
	if err != nil {
		return model.Sample{}, err
	}
	for key := range refused {
		delete(sample.Active, key)
		delete(sample.NAPIIDs, key)
	}
	if sample.Absent, err = s.absent(sample.Active, refused, napisErr); err != nil {
		return model.Sample{}, err
	}
	if err := s.sampleQueues(&sample, steady); err != nil {
		return model.Sample{}, err
	}
	if err := s.sampleApps(&sample); err != nil {
		return model.Sample{}, err
	}
	if err := s.compareClocks(ctx); err != nil {
		return model.Sample{}, err
	}
	pollEvery := s.pollMask + 1
	if err := errors.Join(s.adjustSampling(cost), s.rotateSalt()); err != nil {
		return model.Sample{}, err
	}
	sample.Probe = &model.ProbeSample{Cost: s.throttle.cost, Budget: s.throttle.budget, PollEvery: pollEvery}
	s.at = at
	s.last, s.now = s.now, s.last
	return sample, nil
}

func (s *Source) sampleQueues(sample *model.Sample, steady []*queue) error {
	var delay model.Histogram
	for _, q := range steady {
		qs := q.sample(&s.now, s.kernel, s.mask+1)
		delay.Merge(qs.Delay)
		sample.Queues = append(sample.Queues, qs)
	}
	slices.SortFunc(sample.Queues, func(a, b model.QueueSample) int { return a.Queue.Compare(b.Queue) })
	for i := range sample.Queues {
		qs := &sample.Queues[i]
		spent, err := s.queues[qs.Queue].threadTime(s.procfs)
		if err != nil {
			return err
		}
		qs.ThreadTime = spent
		if qs.Interrupts, err = s.queues[qs.Queue].interruptGrowth(sysfsRoot, s.procfs); err != nil {
			return err
		}
	}
	if delay.Count() > 0 {
		sample.Latency = &model.Latency{Histogram: delay, Source: "server-side delay"}
	}
	return nil
}

func (s *Source) sampleApps(sample *model.Sample) error {
	if !s.kernel.observes(signalSocketReads) {
		return nil
	}
	seen, err := s.apps.sample(&s.now, s.kernel, s.at)
	if err != nil {
		return err
	}
	for _, pid := range seen.ended {
		if err := s.kernel.forget(pid); err != nil {
			return err
		}
	}
	sample.AppsUnknown = uint64(seen.unknown)
	if err := s.listContexts(sample.At, seen.appeared); err != nil {
		return err
	}
	samples := seen.samples
	if s.listedEver {
		for i := range samples {
			contexts := s.listed[uint32(samples[i].PID)]
			if slices.Contains(seen.ended, uint32(samples[i].PID)) {
				// They were listed while it lived, or are of another process.
				contexts = nil
			}
			samples[i].Contexts = append([]model.EpollContext{}, contexts...)
		}
	}
	sample.Apps = samples
	return nil
}

// rotateSalt makes the next window follow other sockets, while requests that
// are under way are followed to their end. There is nothing to rotate when all
// sockets are followed.
func (s *Source) rotateSalt() error {
	before := s.mask
	s.mask = s.throttle.socketMask()
	if before == 0 && s.mask == 0 {
		return nil
	}
	s.salt, s.saltBefore = rand.Uint32(), s.salt
	return s.kernel.followSockets(s.mask, s.salt, s.saltBefore)
}

// match brings the followed NAPIs in line with the inventory. It returns the
// queues that were followed throughout the window, and those that cannot be
// followed with the reason. Counting of a replaced instance starts from r.
func (s *Source) match(napis []model.NAPI, napisErr error, r *reading) ([]*queue, map[model.Queue]string, error) {
	listed := make(map[model.Queue]model.NAPI, len(napis))
	for _, napi := range napis {
		listed[napi.Queue] = napi
	}
	unread := failedQueues(napisErr)

	// Old entries go first, so that an ID that moved between queues is free.
	var steady []*queue
	followed := make(map[uint32]model.Queue, len(napis))
	for key, q := range s.queues {
		napi, ok := listed[key]
		switch {
		case ok && napi.ID == q.napi.ID:
			if !samePID(q.napi.PID, napi.PID) {
				if err := s.rethread(q, napi); err != nil {
					return nil, nil, err
				}
			}
			q.napi = napi
		case !ok && unread.transient(key):
		default:
			if err := s.drop(q); err != nil {
				return nil, nil, err
			}
			continue
		}
		followed[q.napi.ID] = key
		steady = append(steady, q)
	}

	refused := make(map[model.Queue]string)
	for _, napi := range napis {
		if s.queues[napi.Queue] != nil {
			continue
		}
		other, shared := followed[napi.ID]
		switch {
		case napi.ID == 0:
			refused[napi.Queue] = "its NAPI instance has no ID"
		case shared:
			refused[napi.Queue] = fmt.Sprintf("its NAPI instance %d also serves queue %v, which is followed", napi.ID, other)
		case len(s.free) == 0:
			refused[napi.Queue] = fmt.Sprintf("%d NAPI instances are followed already: start again to follow more", len(s.queues))
		default:
			err := s.add(napi, r)
			if errors.Is(err, errNoPlace) {
				refused[napi.Queue] = err.Error()
				continue
			}
			if err != nil {
				return nil, nil, err
			}
			followed[napi.ID] = napi.Queue
		}
	}
	return steady, refused, nil
}

func (s *Source) drop(q *queue) error {
	if err := s.kernel.unfollow(q.napi.ID, q.napi.PID); err != nil {
		return err
	}
	delete(s.queues, q.napi.Queue)
	s.free = append(s.free, q.slot)
	return nil
}

func (s *Source) add(napi model.NAPI, r *reading) error {
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	if err := s.kernel.follow(napi.ID, slot, napi.PID); err != nil {
		s.free = append(s.free, slot)
		return err
	}
	q := &queue{napi: napi, slot: slot}
	q.baseline(r)
	s.queues[napi.Queue] = q
	return nil
}

// rethread takes note of a NAPI thread that came, went or was replaced.
func (s *Source) rethread(q *queue, napi model.NAPI) error {
	q.thread = nil
	return s.kernel.rethread(napi.ID, q.slot, q.napi.PID, napi.PID)
}

// absent tells why queues have no read-back. It fails when nothing at all is
// known: then there is no queue to name.
func (s *Source) absent(active model.Config, refused map[model.Queue]string, napisErr error) (map[model.Queue]string, error) {
	unread := failedQueues(napisErr)
	if unread.all != nil && len(active) == 0 && len(s.queues) == 0 && len(unread.queues) == 0 {
		return nil, fmt.Errorf("list NAPI instances: %w", unread.all)
	}
	absent := make(map[model.Queue]string)
	for key, err := range unread.queues {
		if _, ok := active[key]; !ok {
			absent[key] = err.Error()
		}
	}
	if unread.all != nil {
		for key := range s.queues {
			if _, ok := active[key]; !ok && absent[key] == "" {
				absent[key] = unread.all.Error()
			}
		}
	}
	maps.Copy(absent, refused)
	if len(absent) == 0 {
		return nil, nil
	}
	return absent, nil
}
