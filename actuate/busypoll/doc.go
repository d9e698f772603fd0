// Package busypoll reads and sets how the epoll contexts and sockets of other,
// running processes busy poll. Nothing in these processes is patched or
// stopped.
//
// The central type is [Handle]: a descriptor of one process, with what tells
// that it still is the one that was meant. [Live.Swap] reaches it by
// pidfd_getfd(2), compares what it is set to with what the caller expects,
// writes, and reads back. The descriptor is duplicated for the length of these
// calls only: while it is, the process's close of it does not end what is
// behind it. For an epoll context that is harmless. A socket goes on
// delivering events to the epoll contexts that watch it after its owner has
// closed it, which programs that keep pointers there do not survive; so
// sockets are reached only where the caller asks for that by [KindSocket].
//
// What exists is listed without duplicating anything, by a [Lister] that the
// caller supplies. A Lister that is a [BudgetReader] too tells the busy-poll
// budget of a socket, which no system call does; without, that budget is left
// alone.
//
// The package may import model. It keeps no state and starts no goroutine;
// nothing has to be closed.
package busypoll
