package tuner

import "autotune/model"

// Memory is what the guards learn of queues: which settings held at which
// load, what they showed there, and which directions keep failing. A loop that
// is given the memory of an earlier one lets a policy return at once to what
// was confirmed then; a policy value that is kept between runs needs it beside
// it. It serves one loop at a time, and only within one boot of the host.
type Memory struct {
	queues map[model.Queue]*knowledge
}

// NewMemory returns an empty memory.
func NewMemory() *Memory { return &Memory{queues: make(map[model.Queue]*knowledge)} }

// knowledge is the memory of one queue.
type knowledge struct {
	// turns counts the windows of all loops.
	turns int
	known map[model.Settings]*record
	fuses map[fuseKind]*fuse
}

func (m *Memory) of(q model.Queue) *knowledge {
	k, ok := m.queues[q]
	if !ok {
		k = &knowledge{known: make(map[model.Settings]*record), fuses: make(map[fuseKind]*fuse)}
		m.queues[q] = k
	}
	return k
}
