package memkernel

import (
	"fmt"
	"maps"

	"autotune/actuate"
	"autotune/actuate/placement"
	"autotune/model"
)

// OpPlace is a write to the CPUs of a thread, interrupt or queue, for
// [System.Fault].
const OpPlace Op = "place"

// Placements are the threads, interrupts and queues of a machine with the CPUs
// of each. Their namespace is not looked at.
type Placements struct {
	system *System
	cpus   map[placement.Item]string
}

// Put makes an item, or moves it as another writer does.
func (p *Placements) Put(i placement.Item, cpus string) {
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	p.cpus[i] = cpus
}

// End removes an item, as when a thread exits.
func (p *Placements) End(i placement.Item) {
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	delete(p.cpus, i)
}

// All returns where everything is.
func (p *Placements) All() map[placement.Item]string {
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	return maps.Clone(p.cpus)
}

// Read implements [placement.System].
func (p *Placements) Read(i placement.Item) (string, error) {
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	cpus, ok := p.cpus[i]
	if !ok {
		return "", fmt.Errorf("%v: %w", i, model.ErrGone)
	}
	return cpus, nil
}

// Write implements [placement.System].
func (p *Placements) Write(i placement.Item, cpus string) error {
	if err := p.system.fault(OpPlace); err != nil {
		return err
	}
	p.system.mu.Lock()
	defer p.system.mu.Unlock()
	if _, ok := p.cpus[i]; !ok {
		return fmt.Errorf("%v: %w", i, model.ErrGone)
	}
	p.cpus[i] = cpus
	return nil
}

// Placements returns the machine's.
func (s *System) Placements() *Placements { return s.placements }

// Placement implements [actuate.System].
func (s *System) Placement(actuate.Kernel) placement.System { return s.placements }
