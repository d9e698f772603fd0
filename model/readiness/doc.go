// Package readiness judges whether interrupt suspension would help one
// process, and what to do where it would not. It owns the questions and their
// answers; what they are answered from is gathered elsewhere.
//
// The central type is [Facts]: one process, its epoll contexts and threads, and
// the NAPI instances of the selected interfaces at one moment. [Judge] turns it
// into one [Answer] per question and subject. A fact that nobody could observe
// is nil, and its answer then [Unknown], never a guess.
//
// The package may import model. It does no I/O and reads no clock.
package readiness
