package actuate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/actuate/memkernel"
	"autotune/model"

	"pgregory.net/rapid"
)

// knob is one value of one queue, with the last one to have set it beside the
// value that it would have had without autotune.
type knob struct {
	original, shadow uint64
	foreign          bool
}

// world is a machine, and what must be true of it.
type world struct {
	t      *rapid.T
	system *memkernel.System
	device *memkernel.Device
	kind   memkernel.Driver
	// wide is a kernel that sets all queues of the device at once: there is
	// one row of knobs then.
	wide bool
	// knobs is by queue and position in Settings.
	knobs  [][3]*knob
	queues int
	// written tells which rows this run may have written.
	written []bool
	// defaults are the device-level values, and ordered whether somebody has
	// set them during the run.
	defaults actuate.Defaults
	ordered  bool

	root    string
	serial  uint64
	host    *actuate.Crashable
	fuse    int
	failing int
}

var errFault = fmt.Errorf("injected: %w", model.ErrBusy)

// suspend is the position of the suspend timeout.
const suspend = 2

type crash struct{}

// step is a point at which the process can die.
func (w *world) step(string) {
	if w.fuse--; w.fuse == 0 {
		panic(crash{})
	}
}

func (w *world) fault(memkernel.Op) error {
	w.step("")
	if w.failing--; w.failing == 0 {
		return errFault
	}
	return nil
}

// attempt runs one operation of a process that may be killed in it, and
// reports whether it survived.
func (w *world) attempt(do func()) (survived bool) {
	defer func() {
		w.fuse, w.failing = 0, 0
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			w.host.Crash()
			w.host = nil
			survived = false
		}
	}()
	w.fuse = rapid.IntRange(0, 60).Draw(w.t, "dies at step")
	w.failing = rapid.IntRange(0, 60).Draw(w.t, "fails at operation")
	do()
	return true
}

func values(s model.Settings) [3]uint64 {
	return [3]uint64{uint64(s.DeferHardIRQs), uint64(s.GROFlushTimeout), uint64(s.IRQSuspendTimeout)}
}

func settings(v [3]uint64) model.Settings {
	return model.Settings{DeferHardIRQs: uint32(v[0]), GROFlushTimeout: time.Duration(v[1]), IRQSuspendTimeout: time.Duration(v[2])}
}

// begin takes what is there now for the originals, as a new run does.
func (w *world) begin() {
	w.ordered = false
	for i := range w.knobs {
		w.written[i] = false
		for k, v := range values(w.device.Settings(i)) {
			*w.knobs[i][k] = knob{original: v, shadow: v}
		}
	}
}

// check compares the machine with what autotune must have left after
// everything was put back.
func (w *world) check(when string) {
	for i := range w.knobs {
		for k, got := range values(w.device.Settings(i)) {
			state := w.knobs[i][k]
			want := state.original
			if state.foreign || !w.written[i] {
				want = state.shadow
			}
			if got != want {
				w.t.Fatalf("%s: queue %d knob %d is %d, want %d (original %d, foreign %v, written %v)",
					when, i, k, got, want, state.original, state.foreign, w.written[i])
			}
		}
	}
}

// unique returns a value that nobody else writes.
func (w *world) unique() uint64 {
	w.serial++
	return 5_000_000 + w.serial
}

func (w *world) foreignWrite() {
	i := rapid.IntRange(0, len(w.knobs)-1).Draw(w.t, "queue")
	v := values(w.device.Settings(i))
	for k := range v {
		if k == suspend && w.wide {
			continue
		}
		if rapid.Bool().Draw(w.t, "knob") {
			v[k] = w.unique()
			*w.knobs[i][k] = knob{original: w.knobs[i][k].original, foreign: true, shadow: v[k]}
		}
	}
	if w.wide {
		w.defaults = actuate.Defaults{DeferHardIRQs: uint32(v[0]), GROFlushTimeout: time.Duration(v[1])}
		w.device.WriteSysfs(w.defaults)
		return
	}
	w.device.Write(i, settings(v))
}

func (w *world) foreignSysfs() {
	w.defaults = actuate.Defaults{DeferHardIRQs: uint32(w.unique()), GROFlushTimeout: time.Duration(w.unique())}
	w.device.WriteSysfs(w.defaults)
	w.ordered = true
	for i := range w.knobs {
		*w.knobs[i][0] = knob{original: w.knobs[i][0].original, foreign: true, shadow: uint64(w.defaults.DeferHardIRQs)}
		*w.knobs[i][1] = knob{original: w.knobs[i][1].original, foreign: true, shadow: uint64(w.defaults.GROFlushTimeout)}
	}
}

func (w *world) up() {
	if w.device.Link().Up {
		return
	}
	w.device.Up()
	if w.kind.Persistent || w.wide {
		return
	}
	for i := range w.knobs {
		w.knobs[i][0].foreign, w.knobs[i][0].shadow = w.ordered, uint64(w.defaults.DeferHardIRQs)
		w.knobs[i][1].foreign, w.knobs[i][1].shadow = w.ordered, uint64(w.defaults.GROFlushTimeout)
		if !w.kind.ReusesMemory {
			w.knobs[i][2].foreign, w.knobs[i][2].shadow = false, 0
		}
	}
}

func (w *world) dir(name string) string { return filepath.Join(w.root, name) }

func (w *world) options() actuate.Options {
	return actuate.Options{
		Namespace: actuate.NamespaceRef{Name: "n"}, Ifaces: []string{"dev0"},
		StateDir: w.dir(rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "state")), RunDir: w.dir("run"),
	}
}

func (w *world) open() {
	if w.host != nil {
		// A second run must be refused, whatever its state.
		second := actuate.NewCrashable(nil)
		err := second.Open(context.Background(), w.system, w.options())
		var locked *actuate.LockedError
		if !errors.As(err, &locked) || locked.PID != os.Getpid() {
			w.t.Fatalf("a second run: %v, want a LockedError with process %d", err, os.Getpid())
		}
		if err := second.Host.Close(); err != nil {
			w.t.Fatal(err)
		}
		return
	}
	options := w.options()
	w.host = actuate.NewCrashable(w.step)
	var err error
	if !w.attempt(func() { err = w.host.Open(context.Background(), w.system, options) }) {
		return
	}
	if err != nil {
		if !errors.Is(err, errFault) && w.device.Link().Up {
			// With the link up and no fault only an unsettled restore that
			// met a fault may stand in the way.
			var unknown *actuate.StateError
			if errors.As(err, &unknown) {
				w.t.Fatalf("open: %v", err)
			}
		}
		if err := w.host.Host.Close(); err != nil {
			w.t.Fatalf("close: %v", err)
		}
		w.host = nil
		return
	}
	w.check("after open")
	w.begin()
}

func (w *world) apply() {
	if w.host == nil {
		return
	}
	want := model.Config{}
	for i := range w.queues {
		if rapid.Bool().Draw(w.t, "queue") {
			want[w.device.Queue(i)] = w.setting()
		}
	}
	possible := true
	if w.wide && rapid.IntRange(0, 9).Draw(w.t, "disagree") > 0 {
		one := w.setting()
		one.IRQSuspendTimeout = 0
		for q := range want {
			want[q] = one
		}
	} else if w.wide {
		possible = agree(want)
	}
	before := map[int][3]uint64{}
	for i := range w.knobs {
		before[i] = values(w.device.Settings(i))
	}
	foreign := map[int]bool{}
	for i := range w.knobs {
		for _, k := range w.knobs[i] {
			foreign[i] = foreign[i] || k.foreign
		}
	}
	var active model.Config
	var err error
	if !w.attempt(func() { active, err = w.host.Host.Apply(context.Background(), want) }) {
		return
	}
	if err == nil && !possible {
		w.t.Fatalf("apply of %v to one device gives no error", want)
	}
	for i := range w.knobs {
		q := w.device.Queue(i)
		if w.wide {
			for other := range want {
				q = other
			}
		}
		now := w.device.Settings(i)
		if !possible && values(now) != before[i] {
			w.t.Fatalf("apply of %v to one device changed it from %v to %v", want, before[i], now)
		}
		if got, ok := active[q]; ok && got != now {
			w.t.Fatalf("apply says queue %d is %v, it is %v", i, got, now)
		}
		if foreign[i] && values(now) != before[i] {
			w.t.Fatalf("queue %d belongs to another writer and was changed from %v to %v", i, before[i], now)
		}
		if err == nil && w.device.Link().Up {
			if settings, asked := want[q]; asked && now != settings {
				w.t.Fatalf("apply without error left queue %d at %v, want %v", i, now, settings)
			} else if asked {
				for _, k := range w.knobs[i] {
					k.foreign = false
				}
			}
		}
	}
}

func (w *world) setting() model.Settings {
	return model.Settings{
		DeferHardIRQs:     rapid.Uint32Range(0, 3).Draw(w.t, "defer"),
		GROFlushTimeout:   time.Duration(rapid.Int64Range(0, 3).Draw(w.t, "flush")) * 10 * time.Microsecond,
		IRQSuspendTimeout: time.Duration(rapid.Int64Range(0, 2).Draw(w.t, "suspend")) * 10 * time.Millisecond,
	}
}

// recorded reports whether a run left word that it may have written a queue.
func (w *world) recorded(i int) bool {
	q := w.device.Queue(i)
	if w.wide {
		q.Index = actuate.WholeDevice
	}
	return actuate.Recorded(w.dir("a"), q) || actuate.Recorded(w.dir("b"), q)
}

// account compares the files with the machine: state files always parse, and
// while no write is on record none may show.
func (w *world) account() {
	for _, dir := range []string{"a", "b"} {
		if _, err := actuate.LoadState(w.dir(dir)); err != nil {
			w.t.Fatalf("state %s: %v", dir, err)
		}
	}
	outstanding := false
	for i := range w.knobs {
		recorded := w.recorded(i)
		outstanding = outstanding || recorded
		w.written[i] = w.written[i] || recorded
	}
	if outstanding {
		return
	}
	w.check("with nothing on record")
	if w.host == nil {
		w.begin()
	}
}

func (w *world) stop() {
	if w.host == nil {
		return
	}
	var report actuate.Report
	var err error
	if !w.attempt(func() { report, err = w.host.Host.Restore(context.Background()) }) {
		return
	}
	if err == nil && report.Settled {
		w.check("after Host.Restore")
	}
	if err := w.host.Host.Close(); err != nil {
		w.t.Fatalf("close: %v", err)
	}
	w.host = nil
}

func (w *world) kill() {
	if w.host != nil {
		w.host.Crash()
		w.host = nil
	}
}

func (w *world) restore() {
	dir := w.dir(rapid.SampledFrom([]string{"a", "b"}).Draw(w.t, "state"))
	if w.host != nil {
		return
	}
	w.host = actuate.NewCrashable(w.step)
	if w.attempt(func() { _, _ = w.host.RestoreOn(context.Background(), w.system, dir, w.dir("run")) }) {
		w.host = nil
	}
}

// TestWhateverHappensTheOriginalsComeBack runs random sequences of applying,
// foreign writes, link flaps, faults, kills at any step, and restores, and then
// looks whether each knob is at its original or at what another writer set.
func TestWhateverHappensTheOriginalsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { whatever(t, memkernel.EraSet) })
}

// TestWhateverHappensDeviceWide is the same for kernels that can only set all
// queues of a device at once.
func TestWhateverHappensDeviceWide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whatever(t, rapid.SampledFrom([]memkernel.Era{memkernel.EraList, memkernel.EraNone}).Draw(t, "era"))
	})
}

func whatever(t *rapid.T, era memkernel.Era) {
	root, err := os.MkdirTemp("", "actuate")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	}()
	w := &world{t: t, system: memkernel.New(), root: root}
	w.system.Fault, w.system.Era, w.wide = w.fault, era, era != memkernel.EraSet
	w.system.Shuffle = rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shuffle"), 1))
	w.kind = memkernel.Driver{
		Persistent: rapid.Bool().Draw(t, "persistent"), ReusesMemory: rapid.Bool().Draw(t, "reuses memory"),
		ReportsNAPI: rapid.Bool().Draw(t, "reports NAPI"),
	}
	queues := rapid.IntRange(1, 3).Draw(t, "queues")
	w.device = w.system.AddNamespace("n").AddDevice("dev0", queues, w.kind)
	w.queues = queues
	rows := queues
	if w.wide {
		rows = 1
	}
	w.written = make([]bool, rows)
	w.knobs = make([][3]*knob, rows)
	w.defaults = actuate.Defaults{
		DeferHardIRQs:   rapid.Uint32Range(0, 3).Draw(t, "default defer"),
		GROFlushTimeout: time.Duration(rapid.Int64Range(0, 3).Draw(t, "default flush")) * 10 * time.Microsecond,
	}
	w.device.WriteSysfs(w.defaults)
	for i := range rows {
		if !w.wide {
			w.device.Write(i, settings([3]uint64{
				rapid.Uint64Range(0, 3).Draw(t, "original defer"), rapid.Uint64Range(0, 3).Draw(t, "original flush") * 10_000,
				rapid.Uint64Range(0, 1).Draw(t, "original suspend") * 10_000_000,
			}))
		}
		w.knobs[i] = [3]*knob{{}, {}, {}}
	}
	w.begin()
	for range rapid.IntRange(1, 25).Draw(t, "length") {
		switch rapid.SampledFrom([]string{
			"open", "open", "apply", "apply", "apply", "apply", "foreign", "sysfs", "down", "up", "stop", "kill", "restore",
		}).Draw(t, "what") {
		case "open":
			w.open()
		case "apply":
			w.apply()
		case "foreign":
			w.foreignWrite()
		case "sysfs":
			w.foreignSysfs()
		case "down":
			w.device.Down()
		case "up":
			w.up()
		case "stop":
			w.stop()
		case "kill":
			w.kill()
		case "restore":
			w.restore()
		}
		w.account()
	}
	w.kill()
	w.up()
	for _, dir := range []string{"a", "b"} {
		report, err := actuate.RestoreOn(context.Background(), w.system, w.dir(dir), w.dir("run"))
		if err != nil || !report.Settled {
			t.Fatalf("restore %s: %v\n%s", dir, err, report)
		}
		if found, err := actuate.LoadState(w.dir(dir)); found || err != nil {
			t.Fatalf("state %s after a settled restore: %v, %v", dir, found, err)
		}
	}
	w.check("at the end")
}
