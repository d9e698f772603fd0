package actuate_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/actuate/memkernel"
	"autotune/model"

	"pgregory.net/rapid"
)

// truth is what one context would be set to had autotune never run.
type truth struct {
	params busypoll.Params
	// again: the process had closed a context before, whose address this one
	// may have. Only its values tell them apart, and prefer has too few.
	again bool
}

// crowd is applications that come and go, and what must be true of them.
type crowd struct {
	t       *rapid.T
	system  *memkernel.System
	alive   []*memkernel.Process
	truths  map[*memkernel.Process]map[int]*truth
	closed  map[*memkernel.Process]bool
	serial  uint32
	root    string
	apps    *actuate.CrashableApplications
	fuse    int
	failing int
}

func (c *crowd) step(string) {
	if c.fuse--; c.fuse == 0 {
		panic(crash{})
	}
}

func (c *crowd) fault(memkernel.ContextOp, busypoll.Handle) error {
	c.step("")
	if c.failing--; c.failing == 0 {
		return fmt.Errorf("injected: %w", model.ErrBusy)
	}
	return nil
}

func (c *crowd) attempt(do func()) {
	defer func() {
		c.fuse, c.failing = 0, 0
		if r := recover(); r != nil {
			if _, ok := r.(crash); !ok {
				panic(r)
			}
			if c.apps != nil {
				c.apps.Crash()
			}
			c.apps = nil
		}
	}()
	c.fuse = rapid.IntRange(0, 60).Draw(c.t, "dies at step")
	c.failing = rapid.IntRange(0, 30).Draw(c.t, "fails at operation")
	do()
}

// unique returns values that nobody else writes. Prefer has only two.
func (c *crowd) unique() busypoll.Params {
	c.serial++
	return busypoll.Params{Usecs: 1000 + c.serial, Budget: uint16(c.serial), Prefer: rapid.Bool().Draw(c.t, "prefer")}
}

func (c *crowd) pick() (*memkernel.Process, int) {
	if len(c.alive) == 0 {
		return nil, 0
	}
	p := rapid.SampledFrom(c.alive).Draw(c.t, "process")
	fds := p.Descriptors()
	if len(fds) == 0 {
		return p, 0
	}
	return p, rapid.SampledFrom(fds).Draw(c.t, "descriptor")
}

func (c *crowd) start() {
	if len(c.alive) < 4 {
		p := c.system.Applications.Start("app")
		c.alive = append(c.alive, p)
		c.truths[p] = map[int]*truth{}
	}
}

func (c *crowd) openContext() {
	if p, _ := c.pick(); p != nil && len(c.truths[p]) < 4 {
		fd := p.Open(7)
		own := c.unique()
		p.Write(fd, own)
		c.truths[p][fd] = &truth{params: own, again: c.closed[p]}
	}
}

func (c *crowd) closeContext() {
	if p, fd := c.pick(); fd != 0 {
		p.Close(fd)
		c.closed[p] = true
		delete(c.truths[p], fd)
	}
}

func (c *crowd) exit() {
	p, _ := c.pick()
	if p == nil {
		return
	}
	p.Exit()
	c.alive = slices.DeleteFunc(c.alive, func(o *memkernel.Process) bool { return o == p })
	delete(c.truths, p)
}

func (c *crowd) foreignWrite() {
	p, fd := c.pick()
	if fd == 0 {
		return
	}
	theirs, now := c.unique(), p.Params(fd)
	for _, n := range busypoll.Parameters() {
		if n != busypoll.ParameterPrefer && rapid.Bool().Draw(c.t, "parameter") {
			now = n.With(now, n.Of(theirs))
			c.truths[p][fd].params = n.With(c.truths[p][fd].params, n.Of(theirs))
		}
	}
	p.Write(fd, now)
}

func (c *crowd) dir(name string) string { return filepath.Join(c.root, name) }

func (c *crowd) open() {
	if c.apps != nil {
		return
	}
	state := c.dir(rapid.SampledFrom([]string{"a", "b"}).Draw(c.t, "state"))
	c.apps = actuate.NewCrashableApplications(c.step)
	c.attempt(func() {
		err := c.apps.Open(c.system, state, c.dir("run"))
		if err != nil && !errors.Is(err, model.ErrBusy) {
			c.t.Fatalf("open: %v", err)
		}
		if err != nil {
			c.apps.Crash()
			c.apps = nil
		}
	})
}

func (c *crowd) apply() {
	if c.apps == nil {
		return
	}
	rows, err := c.system.Processes().List(context.Background(), nil, false)
	if err != nil {
		c.t.Fatal(err)
	}
	var wishes []actuate.Wish
	for _, d := range rows {
		if rapid.Bool().Draw(c.t, "wish") {
			to := c.unique()
			wishes = append(wishes, actuate.Wish{Descriptor: d, To: func(busypoll.Params) busypoll.Params { return to }})
		}
	}
	c.attempt(func() {
		granted, err := c.apps.Apps.Apply(context.Background(), wishes)
		if err != nil && !errors.Is(err, model.ErrBusy) {
			c.t.Fatalf("apply: %v", err)
		}
		for _, g := range granted {
			if g.Err == nil && *g.Now == *g.From {
				c.t.Fatalf("granted %+v without a change", g)
			}
		}
	})
}

func (c *crowd) forget() {
	if c.apps == nil {
		return
	}
	rows, err := c.system.Processes().List(context.Background(), nil, false)
	if err == nil {
		err = c.apps.Apps.Forget(rows)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *crowd) close() {
	if c.apps == nil {
		return
	}
	if err := c.apps.Apps.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.apps = nil
}

// restore puts everything back, however often it is killed in between, and
// checks that nothing of autotune is left.
func (c *crowd) restore() {
	c.close()
	for _, state := range []string{"a", "b"} {
		restorer := actuate.NewCrashable(c.step)
		c.attempt(func() {
			defer func() {
				if r := recover(); r != nil {
					restorer.Crash()
					panic(r)
				}
			}()
			_, err := restorer.RestoreOn(context.Background(), c.system, c.dir(state), c.dir("run"))
			if err != nil && !errors.Is(err, model.ErrBusy) {
				c.t.Fatalf("restore: %v", err)
			}
		})
		report, err := actuate.RestoreOn(context.Background(), c.system, c.dir(state), c.dir("run"))
		if err != nil || !report.Settled {
			c.t.Fatalf("restore of %s: %v\n%v", state, err, report)
		}
	}
	for p, contexts := range c.truths {
		for fd, want := range contexts {
			got := p.Params(fd)
			for _, n := range busypoll.Parameters() {
				if n == busypoll.ParameterPrefer && want.again {
					continue
				}
				if n.Of(got) != n.Of(want.params) {
					c.t.Fatalf("process %d context %d %s is %d, want %d", p.PID, fd, n, n.Of(got), n.Of(want.params))
				}
			}
		}
	}
}

func TestApplicationsAreExactAfterAKillAtAnyInstant(t *testing.T) {
	base := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		c := &crowd{t: rt, system: memkernel.New(), truths: map[*memkernel.Process]map[int]*truth{}, closed: map[*memkernel.Process]bool{}, root: filepath.Join(base, fmt.Sprint(runs))}
		c.system.Applications.Fault = c.fault
		c.start()
		c.openContext()
		rt.Repeat(map[string]func(*rapid.T){
			"process starts":  func(*rapid.T) { c.start() },
			"context opened":  func(*rapid.T) { c.openContext() },
			"context closed":  func(*rapid.T) { c.closeContext() },
			"process exits":   func(*rapid.T) { c.exit() },
			"foreign write":   func(*rapid.T) { c.foreignWrite() },
			"run begins":      func(*rapid.T) { c.open() },
			"run applies":     func(*rapid.T) { c.apply() },
			"run forgets":     func(*rapid.T) { c.forget() },
			"run ends":        func(*rapid.T) { c.close() },
			"originals again": func(*rapid.T) { c.restore() },
		})
		c.restore()
	})
}
