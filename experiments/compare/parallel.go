package compare

import (
	"context"
	"errors"
	"sync"
)

// parallel does job 0 to n-1 on so many goroutines. It stops handing out jobs
// when ctx ends or a job fails. Done, when not nil, is told the number of
// finished jobs, by one goroutine at a time.
func parallel(ctx context.Context, n, workers int, job func(int) error, done func(int)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	next := make(chan int)
	var wait sync.WaitGroup
	var mutex sync.Mutex
	finished := 0
	for range min(workers, n) {
		wait.Go(func() {
			for i := range next {
				err := job(i)
				mutex.Lock()
				if err != nil {
					stop(err)
				} else if finished++; done != nil {
					done(finished)
				}
				mutex.Unlock()
			}
		})
	}
hand:
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			break hand
		}
	}
	close(next)
	wait.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return ctx.Err()
}
