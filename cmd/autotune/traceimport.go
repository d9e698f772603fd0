package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"autotune/model"
	"autotune/model/policy"
	"autotune/probe/trace"
	"autotune/probe/trace/foreign"
)

type traceImportCmd struct {
	traceOutput

	Files    []string `arg:"" name:"file" help:"Series of one host, read one after the other; - is standard input."`
	Format   string   `help:"softnet (snapshots of /proc/net/softnet_stat, each after a line # TIME) or sadf (what sadf -d prints)." enum:"softnet,sadf" required:""`
	Settings string   `help:"What all queues were set to, as a policy spec like static:defer=100,flush=50us; without it that is not known, and a replay decides nothing." placeholder:"SPEC"`
	JSON     bool     `help:"One object per line." name:"json"`
}

// fixed are the settings that the user says were in effect, nil where he does
// not say.
func (c *traceImportCmd) fixed() (*model.Settings, error) {
	if c.Settings == "" {
		return nil, nil
	}
	p, err := policy.Parse(c.Settings)
	if err != nil {
		return nil, fmt.Errorf("--settings: %w", err)
	}
	static, ok := p.(interface{ Settings() model.Settings })
	if !ok {
		return nil, fmt.Errorf("--settings %s: not one setting; name it like static:defer=100,flush=50us", c.Settings)
	}
	settings := static.Settings()
	return &settings, nil
}

// Run implements the command.
func (c *traceImportCmd) Run(std streams) (err error) {
	settings, err := c.fixed()
	if err != nil {
		return usageError(err)
	}
	series, err := c.read()
	if err != nil {
		return usageError(err)
	}
	if len(series.Samples) == 0 {
		return usageError(fmt.Errorf("%s: no window: every one has counters that went backwards", strings.Join(c.Files, " ")))
	}
	w, err := c.create(c.header(series))
	if err != nil {
		return err
	}
	for i := range series.Samples {
		s := &series.Samples[i]
		if settings != nil {
			s.Active = model.Config{}
			for _, q := range s.Queues {
				s.Active[q.Queue] = *settings
			}
		}
		if err := w.Write(*s); err != nil {
			return c.discard(errors.Join(err, w.Close()))
		}
	}
	if err := w.Close(); err != nil {
		return c.discard(err)
	}
	if series.Resets > 0 {
		fmt.Fprintf(std.err, "left out %s whose counters began again\n", model.Count(series.Resets, "window"))
	}
	return printReplay(std.out, c.JSON, c.made(w.Stats(), trace.Stats{}))
}

func (c *traceImportCmd) read() (series foreign.Series, err error) {
	var readers []io.Reader
	for _, path := range c.Files {
		if path == "-" {
			readers = append(readers, os.Stdin)
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			return series, fmt.Errorf("open series: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		// A file may end without a line feed.
		readers = append(readers, file, strings.NewReader("\n"))
	}
	read := foreign.ReadSoftnet
	if c.Format == "sadf" {
		read = foreign.ReadSadf
	}
	series, err = read(io.MultiReader(readers...))
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(c.Files, " "), err)
	}
	return series, err
}

// header says what is known, which is little.
func (c *traceImportCmd) header(s foreign.Series) trace.Header {
	begin := s.Begin
	h := trace.Header{
		AutotuneVersion: version(), Host: s.Host, Clock: "imported",
		StartedWall: &begin, Interval: s.Interval, Probes: []trace.Probe{},
		Conditions: trace.Conditions{Devices: []trace.Device{}, CPUs: []trace.CPU{}},
		Edits:      []trace.Edit{{Op: trace.EditImport, Detail: c.Format}},
	}
	for _, name := range []string{"polls", "timers", "socket reads", "softirqs", "epoll returns"} {
		h.Probes = append(h.Probes, trace.Probe{Name: name, State: model.FindingMissing, Detail: "not in a series of " + c.Format})
	}
	for _, ifindex := range slices.Sorted(maps.Keys(s.Ifnames)) {
		h.Conditions.Devices = append(h.Conditions.Devices, trace.Device{
			Ifindex: ifindex, Ifname: s.Ifnames[ifindex],
			NAPIs: []trace.NAPI{},
		})
	}
	return h
}
