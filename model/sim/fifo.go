package sim

// fifo is a growable ring buffer. Its capacity is a power of two and follows
// the largest occupancy seen, which the number of connections bounds.
type fifo[T any] struct {
	buf        []T
	head, tail uint64 // the occupied positions are head to tail-1, modulo the capacity
}

func (f *fifo[T]) len() int { return int(f.tail - f.head) }

func (f *fifo[T]) push(v T) {
	if f.len() == len(f.buf) {
		f.grow()
	}
	f.buf[f.tail&uint64(len(f.buf)-1)] = v
	f.tail++
}

func (f *fifo[T]) pop() T {
	v := f.buf[f.head&uint64(len(f.buf)-1)]
	f.head++
	return v
}

// at returns the element at position i, counted as head and tail are.
func (f *fifo[T]) at(i uint64) *T { return &f.buf[i&uint64(len(f.buf)-1)] }

func (f *fifo[T]) grow() {
	next := make([]T, max(64, 2*len(f.buf)))
	for i := f.head; i < f.tail; i++ {
		next[i&uint64(len(next)-1)] = *f.at(i)
	}
	f.buf = next
}
