package probe

import (
	"maps"
	"slices"
	"time"

	"autotune/model"
)

// contextsEvery is how often epoll contexts are listed: the listing visits
// every file of every process that receives.
const contextsEvery = 10 * time.Second

// contextLister lists the epoll contexts of at least the given processes; a
// process with none may be absent.
type contextLister interface {
	list(pids []uint32) (map[uint32][]model.EpollContext, error)
	close() error
}

// listContexts brings what is known of contexts up to date: of all processes
// that receive from time to time, and of those that appeared at once.
func (s *Source) listContexts(at time.Duration, appeared []uint32) error {
	switch {
	case s.contexts == nil:
		return nil
	case !s.listedEver || at-s.listedAt >= contextsEvery:
		// Not nil, which would mean all processes.
		pids := slices.AppendSeq(make([]uint32, 0, len(s.now.apps)), maps.Keys(s.now.apps))
		listed, err := s.contexts.list(pids)
		if err != nil {
			return err
		}
		s.listed, s.listedAt, s.listedEver = listed, at, true
	case len(appeared) > 0:
		listed, err := s.contexts.list(appeared)
		if err != nil {
			return err
		}
		for _, pid := range appeared {
			s.listed[pid] = listed[pid]
		}
	}
	return nil
}
