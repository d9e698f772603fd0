package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"autotune/actuate"
	"autotune/actuate/busypoll"
	"autotune/model"
)

type busypollSetCmd struct {
	selection `embed:""`
	Usecs     *uint32 `help:"How long to busy poll before sleeping, in microseconds." placeholder:"N"`
	Budget    *uint32 `help:"Packets per busy poll; above 64 needs CAP_NET_ADMIN." placeholder:"N"`
	Prefer    string  `help:"Whether to prefer busy polling over interrupts: on or off." placeholder:"on|off"`
	Sockets   bool    `help:"Also set TCP, UDP and AF_XDP sockets. Dangerous: one that its owner closes in the instant of the call delivers one more event."`
	State     string  `help:"Directory of the originals." placeholder:"DIR"`
	JSON      bool    `help:"One object per line." name:"json"`
}

// socketsWarning is what --sockets has to say.
const socketsWarning = "--sockets reaches each socket by a second descriptor for an instant. If its owner closes it just then, " +
	"its epoll contexts can still report it once: programs that keep pointers there may use memory that they have freed"

// busypollSetLine is one context or socket in the output of busypoll set --json.
type busypollSetLine struct {
	Kind    string `json:"kind"` // "epoll", "tcp", "udp" or "xdp"
	PID     int    `json:"pid"`
	Comm    string `json:"comm"`
	FD      int    `json:"fd"`
	Outcome string `json:"outcome"` // "set", "unchanged", "gone", "refused"
	// From was found, and Now was read back; null where they could not be
	// read.
	From *busypoll.Params `json:"from"`
	Now  *busypoll.Params `json:"now"`
	// Error says why it was refused; null where it was not.
	Error *string `json:"error"`
}

func (c *busypollSetCmd) check() (model.Selector, error) {
	sel, err := c.selector(false)
	switch {
	case err != nil:
		return sel, err
	case c.Prefer != "" && c.Prefer != "on" && c.Prefer != "off":
		return sel, usageError(fmt.Errorf("--prefer %s: on or off", c.Prefer))
	case c.Usecs == nil && c.Budget == nil && c.Prefer == "":
		return sel, usageError(errors.New("say what to set: --usecs, --budget or --prefer"))
	case c.Budget != nil && *c.Budget > math.MaxUint16:
		return sel, usageError(fmt.Errorf("--budget %d: 0 to %d packets (0 is the kernel's own choice; above %d needs CAP_NET_ADMIN)", *c.Budget, math.MaxUint16, busypoll.MaxBudget))
	case c.Usecs != nil && *c.Usecs > busypoll.MaxUsecs:
		return sel, usageError(fmt.Errorf("--usecs %d: at most %d", *c.Usecs, busypoll.MaxUsecs))
	}
	return sel, nil
}

// to returns what a context with these parameters is to be set to.
func (c *busypollSetCmd) to(p busypoll.Params) busypoll.Params {
	if c.Usecs != nil {
		p.Usecs = *c.Usecs
	}
	if c.Budget != nil {
		p.Budget = uint16(*c.Budget)
	}
	if c.Prefer != "" {
		p.Prefer = c.Prefer == "on"
	}
	return p
}

// Run implements the command.
func (c *busypollSetCmd) Run(ctx context.Context, std streams) (err error) {
	sel, err := c.check()
	if err != nil {
		return err
	}
	state, err := stateOr(c.State)
	if err != nil {
		return usageError(err)
	}
	apps := &applications{}
	defer func() { err = errors.Join(err, apps.Close()) }()
	rows, err := selected(ctx, apps, sel, c.Sockets)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		if err := lookable("/proc", sel); err != nil {
			return err
		}
		return fmt.Errorf("no process that %v selects has an epoll context", sel)
	}
	if c.Sockets {
		if err := apps.canSetSockets(c.Budget != nil); err != nil {
			return err
		}
		fmt.Fprintln(std.err, socketsWarning)
	}
	owned, err := actuate.OpenApplications(ctx, actuate.Live{Applications: apps}, state, "")
	if err != nil {
		return openError(err)
	}
	defer func() { err = errors.Join(err, owned.Close()) }()
	var wishes []actuate.Wish
	for _, d := range rows {
		wishes = append(wishes, actuate.Wish{Descriptor: d, To: c.to})
	}
	granted, applyErr := owned.Apply(ctx, wishes)
	for _, report := range owned.Recovered() {
		fmt.Fprintf(std.err, "restored what another run had left:\n%s", report)
	}
	if len(granted) == 0 {
		return applicationsError(applyErr)
	}
	return errors.Join(c.print(std, state, granted), applyErr)
}

func (c *busypollSetCmd) print(std streams, state string, granted []actuate.Granted) error {
	set, refused := 0, error(nil)
	for _, g := range granted {
		line := busypollSetLineOf(&g)
		switch line.Outcome {
		case "set":
			set++
		case "refused":
			refused = errors.Join(refused, g.Err)
		}
		var err error
		if c.JSON {
			err = printJSON(std.out, line)
		} else {
			err = printSet(std.out, line)
		}
		if err != nil {
			return err
		}
	}
	if set > 0 {
		fmt.Fprintf(std.err, "autotune restore --state %s puts the originals back\n", state)
	}
	if refused == nil {
		return nil
	}
	if set == 0 {
		return applicationsError(refused)
	}
	return &exitError{code: exitFailed, err: errors.New("not all could be set, as said above")}
}

func busypollSetLineOf(g *actuate.Granted) busypollSetLine {
	d := &g.Descriptor
	line := busypollSetLine{Kind: string(d.Kind), PID: d.PID, Comm: d.Comm, FD: d.FD, From: g.From, Now: g.Now, Outcome: "set"}
	if d.Kind == busypoll.KindSocket {
		line.Kind = d.Protocol
	}
	switch {
	case errors.Is(g.Err, busypoll.ErrVanished):
		line.Outcome = "gone"
	case g.Err != nil:
		why := g.Err.Error()
		line.Outcome, line.Error = "refused", &why
	case *g.From == *g.Now:
		line.Outcome = "unchanged"
	}
	return line
}

func printSet(w io.Writer, line busypollSetLine) error {
	what := fmt.Sprintf("%s (pid %d) %s %d", line.Comm, line.PID, line.Kind, line.FD)
	var err error
	switch line.Outcome {
	case "set":
		_, err = fmt.Fprintf(w, "%s: %v, was %v\n", what, line.Now, line.From)
	case "unchanged":
		_, err = fmt.Fprintf(w, "%s: has %v already\n", what, line.Now)
	case "gone":
		_, err = fmt.Fprintf(w, "%s: closed, or exited, meanwhile\n", what)
	default:
		_, err = fmt.Fprintf(w, "%s: not set: %s\n", what, *line.Error)
	}
	return err
}
