// Package servers measures what IRQ suspension and deferral do to servers
// that know nothing of autotune: memcached, redis, nginx and Go's net/http.
//
// Each server runs unmodified in a test bed, pinned to the CPU of its NAPI
// thread, under an open-loop client, memcached also under a closed one that
// keeps it busy. Contenders take turns within each round:
// the server untouched, deferral alone, and deferral with suspension, for which
// autotune run turns on preferred busy polling in the running process. The
// central type is [Row], one contender's turn; [Summarize] makes ratios with
// intervals of them. [Start] gives other experiments such a server in a bed of
// theirs, as a [Process].
//
// The package may import experiments/testbed, experiments/workload,
// experiments/stats, model and probe/trace. It runs the program under test as a
// command of its own, as a user would.
package servers
