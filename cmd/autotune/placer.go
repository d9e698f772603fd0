package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"autotune/actuate"
	"autotune/actuate/placement"
	"autotune/model"
	"autotune/probe/process"
)

// placeMode is what run --placement does.
type placeMode string

const (
	placeOff     placeMode = ""
	placeObserve placeMode = "observe"
	placeAlign   placeMode = "align"
)

// placeEvery is how often placement is looked at while no NAPI instance was
// made anew.
const placeEvery = 2 * time.Second

// placer keeps polls where packets are read.
type placer struct {
	host  *actuate.Host
	watch *readinessWatch
	mode  placeMode
	// onlySelected leaves threads of processes that were not selected alone.
	onlySelected bool

	at    time.Duration
	ids   map[model.Queue]uint32
	known map[model.Queue]placement.Thread
	// before is where a thread that was made anew has to go.
	before map[model.Queue][]int
	said   map[string]string
}

func newPlacer(host *actuate.Host, watch *readinessWatch, mode placeMode) *placer {
	return &placer{
		host: host, watch: watch, mode: mode,
		known: map[model.Queue]placement.Thread{}, before: map[model.Queue][]int{}, said: map[string]string{},
	}
}

// due reports whether to look after a window.
func (p *placer) due(s *model.Sample) bool {
	renewed := false
	for q, id := range s.NAPIIDs {
		renewed = renewed || p.ids[q] != id
	}
	if p.ids != nil && !renewed && s.At-p.at < placeEvery {
		return false
	}
	p.at, p.ids = s.At, s.NAPIIDs
	return true
}

// facts reads where everything is.
func (p *placer) facts(ctx context.Context) (placement.Facts, error) {
	napis, err := p.host.NAPIs(ctx)
	if len(napis) == 0 && err != nil {
		return placement.Facts{}, err
	}
	files := placement.Host{Procfs: p.watch.procfs}
	f := placement.Facts{Workers: p.watch.workers(p.onlySelected), Nodes: process.Nodes("/sys"), Balancer: files.Balancer()}
	online := onlineCPUs("/sys")
	var errs []error
	for _, n := range napis {
		q := placement.Queue{Queue: n.Queue, Ifname: n.Ifname, NAPIID: n.ID}
		if n.PID != nil {
			switch t, err := files.Thread(int(*n.PID)); {
			case err == nil:
				p.meet(n.Queue, t)
				t.CPUs = among(t.CPUs, online)
				q.Thread, q.Before = &t, among(p.before[n.Queue], online)
			case !errors.Is(err, model.ErrGone):
				errs = append(errs, err)
			}
		}
		if n.IRQ != nil {
			if irq, err := files.Interrupt(*n.IRQ); err == nil {
				irq.Affinity, irq.Effective = among(irq.Affinity, online), among(irq.Effective, online)
				q.IRQ = &irq
			}
		}
		if list, err := p.host.Placement().Read(placement.Item{Kind: placement.KindRPS, Queue: n.Queue}); err == nil {
			q.RPS = &list
		}
		f.Queues = append(f.Queues, q)
	}
	for i := range f.Workers {
		f.Workers[i].CPUs = among(f.Workers[i].CPUs, online)
	}
	return f, errors.Join(errs...)
}

// meet notices a NAPI thread that was made anew, and where the one before it
// was.
func (p *placer) meet(q model.Queue, t placement.Thread) {
	if earlier, met := p.known[q]; met && (earlier.TID != t.TID || earlier.Started != t.Started) && !slices.Equal(earlier.CPUs, t.CPUs) {
		p.before[q] = earlier.CPUs
	}
	if slices.Equal(p.before[q], t.CPUs) {
		delete(p.before, q)
	}
	if _, waiting := p.before[q]; !waiting {
		p.known[q] = t
	}
}

// moves returns what aligning would do.
func (p *placer) moves(ctx context.Context) ([]placement.Move, error) {
	facts, err := p.facts(ctx)
	if err != nil {
		return nil, err
	}
	var out []placement.Move
	for _, f := range placement.Judge(facts) {
		out = append(out, f.Moves...)
	}
	return out, nil
}

// step looks at the placement, and with align carries out what follows. Of
// findings it returns those that say something new.
func (p *placer) step(ctx context.Context) (news []placement.Finding, done []actuate.Placed, err error) {
	facts, err := p.facts(ctx)
	if err != nil {
		return nil, nil, err
	}
	var moves []placement.Move
	for _, f := range placement.Judge(facts) {
		moves = append(moves, f.Moves...)
		text := fmt.Sprint(f.Aligned, f.Detail, f.Consequence, f.Remedy)
		if p.said[f.Subject] != text {
			p.said[f.Subject] = text
			news = append(news, f)
		}
	}
	if p.mode == placeAlign {
		done, err = p.host.Place(ctx, moves)
	}
	return news, done, err
}

// onlineCPUs returns the CPUs that are online; nil where that is not told.
func onlineCPUs(sysfs string) []int {
	text, err := os.ReadFile(filepath.Join(sysfs, "devices/system/cpu/online"))
	if err != nil {
		return nil
	}
	cpus, err := model.ParseCPUList(string(text))
	if err != nil {
		return nil
	}
	return cpus
}

// among returns those of cpus that are online.
func among(cpus, online []int) []int {
	if online == nil {
		return cpus
	}
	var out []int
	for _, cpu := range cpus {
		if slices.Contains(online, cpu) {
			out = append(out, cpu)
		}
	}
	return out
}
