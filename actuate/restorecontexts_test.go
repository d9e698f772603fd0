package actuate_test

import (
	"errors"
	"testing"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/actuate/memkernel"

	"github.com/google/go-cmp/cmp"
)

func TestRestoreOfAnApplicationByParameter(t *testing.T) {
	original := busypoll.Params{Usecs: 7, Budget: 3}
	const all = busypoll.Parameter("")
	for _, tt := range []struct {
		name string
		// after is what happens between the write and the restore.
		after    func(p *memkernel.Process, fd int)
		want     *busypoll.Params
		outcomes map[busypoll.Parameter]actuate.Outcome
	}{
		{
			name: "nothing", after: func(*memkernel.Process, int) {}, want: &original,
			outcomes: map[busypoll.Parameter]actuate.Outcome{"busy_poll_usecs": "restored", "busy_poll_budget": "restored", "prefer_busy_poll": "restored"},
		},
		{
			name:     "another writer changed the budget",
			after:    func(p *memkernel.Process, fd int) { p.Write(fd, busypoll.Params{Budget: 16, Prefer: true}) },
			want:     &busypoll.Params{Usecs: 7, Budget: 16},
			outcomes: map[busypoll.Parameter]actuate.Outcome{"busy_poll_usecs": "restored", "busy_poll_budget": "foreign", "prefer_busy_poll": "restored"},
		},
		{
			name: "the application put its own back", after: func(p *memkernel.Process, fd int) { p.Write(fd, original) }, want: &original,
			outcomes: map[busypoll.Parameter]actuate.Outcome{"busy_poll_usecs": "unchanged", "busy_poll_budget": "unchanged", "prefer_busy_poll": "unchanged"},
		},
		{name: "it exited", after: func(p *memkernel.Process, _ int) { p.Exit() }, outcomes: map[busypoll.Parameter]actuate.Outcome{all: "gone"}},
		{name: "it closed the context", after: func(p *memkernel.Process, fd int) { p.Close(fd) }, outcomes: map[busypoll.Parameter]actuate.Outcome{all: "gone"}},
		{
			name: "its ID is another process's, with the same context address and values",
			after: func(p *memkernel.Process, _ int) {
				other := p.Replace("other")
				other.Write(other.Open(7), preferred)
			},
			outcomes: map[busypoll.Parameter]actuate.Outcome{all: "gone"},
		},
		{
			// It gets the same address, so nothing but the values tells.
			name: "it opened another context with values of its own under the number",
			after: func(p *memkernel.Process, fd int) {
				p.Close(fd)
				p.Open()
				p.Write(fd, busypoll.Params{Usecs: 1, Budget: 8})
			},
			want:     &busypoll.Params{Usecs: 1, Budget: 8},
			outcomes: map[busypoll.Parameter]actuate.Outcome{"busy_poll_usecs": "foreign", "busy_poll_budget": "foreign", "prefer_busy_poll": "unchanged"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newComputer(t)
			p := c.Applications.Start("app")
			fd := p.Open(7)
			p.Write(fd, original)
			for _, g := range c.set("s", preferred, p) {
				if g.Err != nil || *g.From != original || *g.Now != preferred {
					t.Fatalf("set: %+v", g)
				}
			}
			tt.after(p, fd)
			report := c.restore("s")
			if diff := cmp.Diff(tt.outcomes, contextOutcomes(report)); diff != "" || !report.Settled {
				t.Errorf("settled %v, outcomes (-want +got):\n%s\n%v", report.Settled, diff, report)
			}
			if tt.want != nil && p.Params(fd) != *tt.want {
				t.Errorf("left at %v, want %v", p.Params(fd), *tt.want)
			}
			if report := c.restore("s"); !report.Empty() || !report.Settled {
				t.Errorf("a second restore found %v", report)
			}
		})
	}
}

func TestBudgetOfASocketIsPutBackWhereItCanBeRead(t *testing.T) {
	for _, tt := range []struct {
		name string
		to   busypoll.Params
		// why is what SocketBudgets returns at the restore.
		why     error
		want    busypoll.Params
		budget  actuate.Outcome
		settled bool
	}{
		{"it can", preferred, nil, busypoll.Params{Usecs: 7, Budget: 3}, actuate.OutcomeRestored, true},
		{"it cannot", preferred, errors.New("no iterator"), busypoll.Params{Usecs: 7, Budget: 64}, actuate.OutcomeFailed, false},
		{"it cannot, and was never set", busypoll.Params{Budget: 3, Prefer: true}, errors.New("no iterator"), busypoll.Params{Usecs: 7, Budget: 3}, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newComputer(t)
			p := c.Applications.Start("app")
			fd := p.Open(7)
			p.Write(fd, busypoll.Params{Usecs: 7, Budget: 3})
			wishes := c.wishes(tt.to, p)
			wishes[0].Descriptor.Kind = busypoll.KindSocket
			a := c.open("s")
			granted, err := a.Apply(t.Context(), wishes)
			if err := errors.Join(err, a.Close()); err != nil || granted[0].Err != nil || p.Params(fd) != tt.to {
				t.Fatalf("set to %v: %v, %+v", p.Params(fd), err, granted)
			}
			c.Applications.NoBudgets = tt.why
			report := c.restore("s")
			if p.Params(fd) != tt.want || report.Settled != tt.settled || contextOutcomes(report)[busypoll.ParameterBudget] != tt.budget {
				t.Errorf("left at %v, want %v: %v", p.Params(fd), tt.want, report)
			}
			c.Applications.NoBudgets = nil
			if report := c.restore("s"); !report.Settled || p.Params(fd) != (busypoll.Params{Usecs: 7, Budget: 3}) {
				t.Errorf("where budgets can be read again it is left at %v: %v", p.Params(fd), report)
			}
		})
	}
}

// askedProcesses counts how often it was asked for budgets.
type askedProcesses struct {
	busypoll.System
	asked int
}

func (p *askedProcesses) SocketBudgets() error {
	p.asked++
	return p.System.SocketBudgets()
}

type askedSystem struct {
	actuate.System
	processes *askedProcesses
}

func (s askedSystem) Processes() busypoll.System { return s.processes }

func TestRestoringManySocketsAsksOnceForBudgets(t *testing.T) {
	c := newComputer(t)
	p := c.Applications.Start("app")
	const sockets = 5
	for range sockets {
		p.Open(7)
	}
	wishes := c.wishes(preferred, p)
	for i := range wishes {
		wishes[i].Descriptor.Kind = busypoll.KindSocket
	}
	a := c.open("s")
	_, err := a.Apply(t.Context(), wishes)
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	processes := &askedProcesses{System: c.Processes()}
	report, err := actuate.RestoreOn(t.Context(), askedSystem{c.System, processes}, c.state("s"), c.run())
	restored := 0
	for _, r := range report.Contexts {
		if r.Parameter == busypoll.ParameterBudget && r.Outcome == actuate.OutcomeRestored {
			restored++
		}
	}
	if err != nil || !report.Settled || restored != sockets || processes.asked != 1 {
		t.Errorf("asked %d times, want once, and restored %d of %d budgets: %v, %v", processes.asked, restored, sockets, report, err)
	}
}

func TestContextLeftToAChildIsPutBack(t *testing.T) {
	c := newComputer(t)
	parent := c.Applications.Start("app")
	fd := parent.Open(7)
	child := parent.Fork()
	c.set("s", preferred, parent, child)
	parent.Exit()
	if report := c.restore("s"); !report.Settled || child.Params(fd) != (busypoll.Params{}) {
		t.Errorf("child left at %v: %v", child.Params(fd), report)
	}
}
