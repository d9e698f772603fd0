package trace

import (
	"io"
	"sync"
	"time"
)

// file is what a [Writer] needs of an [os.File].
type file interface {
	io.WriteSeeker
	io.Closer
	Truncate(size int64) error
	Sync() error
}

// disk does one thing at a time, and not for longer than its caller has time.
type disk struct {
	mu sync.Mutex
	// busy is set while something is under way, also after it was given up.
	busy bool
}

// do does work. When it takes longer than patience, which zero makes endless,
// do returns [ErrStuck], and so does every further do until work has come to
// an end after all and undo, if not nil, has undone it.
func (d *disk) do(patience time.Duration, work, undo func() error) error {
	if patience <= 0 {
		return work()
	}
	d.mu.Lock()
	if d.busy {
		d.mu.Unlock()
		return ErrStuck
	}
	d.busy = true
	d.mu.Unlock()

	done := make(chan error, 1)
	givenUp := false // guarded by mu
	go func() {
		err := work()
		d.mu.Lock()
		late := givenUp
		if !late {
			d.busy = false
		}
		d.mu.Unlock()
		done <- err
		if !late {
			return
		}
		if undo != nil {
			// Nobody is left to tell: a frame that stays behind is found by
			// its number.
			_ = undo()
		}
		d.mu.Lock()
		d.busy = false
		d.mu.Unlock()
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.busy {
		return <-done
	}
	givenUp = true
	return ErrStuck
}
