package readiness

import (
	"fmt"
	"slices"
	"time"

	"autotune/model"
)

// DefaultSuspend is the suspend timeout that a batch is judged by where none is
// set: that of the published measurements ([model.PublishedCases]).
const DefaultSuspend = 20 * time.Millisecond

// Deferral are the settings that [FixDeferral] stands for where neither knob
// is set: those of the published case suspend50, without its suspend timeout.
func Deferral() model.Settings {
	return model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond}
}

// Judge answers every question about the process: those about contexts for
// each that watches sockets of the interfaces, those about instances for each
// that such a context is on.
func Judge(f Facts) []Answer {
	j := judge{facts: f, byID: map[uint32]*NAPI{}}
	for i := range f.NAPIs {
		if n := &f.NAPIs[i]; n.ID != 0 {
			j.byID[n.ID] = n
		}
	}
	watching, first := j.epoll()
	answers := []Answer{first}
	if len(watching) == 0 {
		return answers
	}
	var used []*NAPI
	for _, c := range watching {
		answers = append(answers, prefer(c), j.unmixed(c))
	}
	for i := range f.NAPIs {
		n := &f.NAPIs[i]
		if slices.ContainsFunc(watching, func(c model.EpollContext) bool { return slices.Contains(c.NAPIIDs, n.ID) }) {
			used = append(used, n)
		}
	}
	for _, n := range used {
		answers = append(answers, deferral(n))
	}
	for _, c := range watching {
		answers = append(answers, j.placement(c))
	}
	answers = append(answers, j.threads(watching, used), j.batch(used))
	for _, n := range used {
		answers = append(answers, safetyTimer(n))
	}
	return append(answers, j.idle(watching, used), j.gain(watching, used))
}

type judge struct {
	facts Facts
	byID  map[uint32]*NAPI
}

func contextName(c model.EpollContext) string { return fmt.Sprintf("epoll context %d", c.FD) }

func (n *NAPI) name() string { return fmt.Sprintf("%s queue %d", n.Ifname, n.Queue.Index) }

// epoll picks the contexts that watch sockets of the interfaces.
func (j judge) epoll() ([]model.EpollContext, Answer) {
	a := Answer{Question: QuestionEpoll}
	if j.facts.App.Contexts == nil {
		a.Verdict, a.Detail = Unknown, "its epoll contexts could not be listed"
		a.Remedy = "run as root; autotune doctor says what is missing"
		if j.facts.App.Idle {
			a.Detail = "it received nothing on these interfaces while it was watched"
			a.Remedy = "ask again under its usual load, or name the interface that it comes in by (--iface, --netns); autotune list --live shows whether packets pass a NAPI instance at all"
		}
		return nil, a
	}
	var watching []model.EpollContext
	opaque, unsure, elsewhere := 0, 0, 0
	for _, c := range j.facts.App.Contexts {
		switch {
		case c.Opaque:
			opaque++
		case slices.ContainsFunc(c.NAPIIDs, func(id uint32) bool { return j.byID[id] != nil }):
			watching = append(watching, c)
		case c.MoreNAPIs:
			unsure++
		default:
			elsewhere++
		}
	}
	switch {
	case len(watching) > 0:
		a.Verdict, a.Detail = Yes, fmt.Sprintf("%s of %d watch sockets of the interfaces", model.Count(len(watching), "context"), len(j.facts.App.Contexts))
	case opaque > 0:
		a.Verdict, a.Detail = Unknown, fmt.Sprintf("%s, and this kernel does not tell whose sockets they watch", model.Count(opaque, "context"))
		a.Remedy = "use a kernel with BPF iterators over files (Linux 5.8, CONFIG_BPF_SYSCALL and BTF)"
	case unsure > 0:
		a.Verdict, a.Detail = Unknown, fmt.Sprintf("%s, of which not all sockets could be listed, and none that was is of these interfaces", model.Count(unsure, "context"))
		a.Remedy = "watch one socket by fewer epoll contexts: only so many of one socket can be listed"
	case elsewhere > 0:
		a.Verdict, a.Detail = No, fmt.Sprintf("%s, but no socket there has received on these interfaces", model.Count(elsewhere, "context"))
		a.Consequence = "suspension gains nothing here now: it begins when epoll_wait returns events of a NAPI's socket"
		a.Remedy = "ask again while clients are connected, or name the interface that they come in by"
	default:
		a.Verdict, a.Detail = No, "it has no epoll context"
		a.Consequence = "suspension gains nothing: only epoll_wait begins one, and neither poll, select, blocking reads nor io_uring do"
		a.Remedy = "tune the queue by deferral only"
	}
	return watching, a
}

func prefer(c model.EpollContext) Answer {
	a := Answer{Question: QuestionPrefer, Subject: contextName(c)}
	if c.Prefer {
		a.Verdict, a.Detail = Yes, fmt.Sprintf("prefer_busy_poll on, budget %d", c.Budget)
		return a
	}
	a.Verdict, a.Detail = No, "prefer_busy_poll off"
	a.Consequence = "irq-suspend-timeout has no effect: the interrupts are not masked while the application works"
	if c.Mixed() {
		a.Remedy = "give it the sockets of one instance only, as below: until then its queues are tuned by deferral"
		return a
	}
	a.Remedy = "let autotune turn it on (--fix, run --apps, busypoll set), or have the application set it (EPIOCSPARAMS, Linux 6.9)"
	a.Fix = FixPrefer
	return a
}

func (j judge) unmixed(c model.EpollContext) Answer {
	a := Answer{Question: QuestionUnmixed, Subject: contextName(c)}
	// ID 0 is a socket that has received nothing yet.
	ids := slices.DeleteFunc(slices.Clone(c.NAPIIDs), func(id uint32) bool { return id == 0 })
	switch {
	case len(ids) <= 1 && c.MoreNAPIs:
		a.Verdict = Unknown
		a.Detail = "the sockets that could be listed are of " + j.napiName(ids[0]) + ", but one of its process is watched by more contexts than can be listed"
		a.Consequence = "it may watch sockets of other instances, which would stay suspended while it polls this one. Tuned by deferral only"
		a.Remedy = "watch one socket by fewer epoll contexts: only so many of one socket can be listed"
		return a
	case len(ids) <= 1:
		a.Verdict, a.Detail = Yes, "all sockets are of "+j.napiName(ids[0])
		return a
	}
	a.Verdict, a.Detail = No, fmt.Sprintf("its sockets are of %d NAPI instances: %s", len(ids), j.napiNames(ids))
	a.Consequence = "a context polls one instance at a time: while it polls that one, the others would stay suspended until the safety timer. Tuned by deferral only"
	a.Remedy = "give each worker the sockets of one instance: by SO_INCOMING_NAPI_ID (memcached -N QUEUES with -t QUEUES), " +
		"by SO_REUSEPORT listeners that a BPF program steers by queue, or use one queue (ethtool -L IFACE combined 1)"
	return a
}

func (j judge) napiName(id uint32) string {
	if n := j.byID[id]; n != nil {
		return fmt.Sprintf("%s (NAPI %d)", n.name(), id)
	}
	return fmt.Sprintf("NAPI %d of another interface", id)
}

func (j judge) napiNames(ids []uint32) string {
	text := ""
	for i, id := range ids {
		if i > 0 {
			text += ", "
		}
		text += j.napiName(id)
	}
	return text
}

func deferral(n *NAPI) Answer {
	a := Answer{Question: QuestionDeferral, Subject: n.name()}
	s := n.Settings
	a.Detail = fmt.Sprintf("defer-hard-irqs %d, gro-flush-timeout %v", s.DeferHardIRQs, s.GROFlushTimeout)
	if s.DeferHardIRQs > 0 && s.GROFlushTimeout > 0 {
		a.Verdict = Yes
		return a
	}
	a.Verdict = No
	a.Consequence = "suspension has almost no effect: nothing polls between the end of a busy period and the next interrupt"
	a.Remedy = fmt.Sprintf("set both, for example to %v; a policy that suspends does so by itself", Deferral())
	a.Fix = FixDeferral
	return a
}

// waiters returns the threads that were seen waiting for the context.
func (j judge) waiters(c model.EpollContext) []Thread {
	var out []Thread
	for _, t := range j.facts.App.Threads {
		if slices.Contains(t.Waits, c.FD) {
			out = append(out, t)
		}
	}
	return out
}

func (j judge) placement(c model.EpollContext) Answer {
	a := Answer{Question: QuestionPlacement, Subject: contextName(c)}
	threads := j.waiters(c)
	var polled []int
	for _, id := range c.NAPIIDs {
		if n := j.byID[id]; n != nil {
			polled = append(polled, n.CPUs...)
		}
	}
	slices.Sort(polled)
	polled = slices.Compact(polled)
	switch {
	case len(threads) == 0:
		a.Verdict, a.Detail = Unknown, "no thread was seen waiting for it"
		a.Remedy = "ask again under load; reading /proc/PID/task/*/syscall needs root"
		return a
	case len(polled) == 0:
		a.Verdict, a.Detail = Unknown, "which CPU polls the instance is not known: the driver reports no interrupt, and there is no NAPI thread"
		a.Remedy = "make the instance threaded (napi-set threaded, Linux 6.17), which gives it a thread that can be placed"
		return a
	}
	apart, elsewhere := 0, 0
	for _, t := range threads {
		switch {
		case subset(t.CPUs, polled):
		case subset(j.nodes(t.CPUs), j.nodes(polled)):
			apart++
		default:
			elsewhere++
		}
	}
	a.Detail = fmt.Sprintf("polled on CPU %s, threads may run on %s", model.FormatCPUList(polled), model.FormatCPUList(union(threads)))
	switch {
	case elsewhere > 0:
		a.Verdict = No
		a.Consequence = fmt.Sprintf("%s may run on another node than polls the instance: every packet crosses between caches", model.Count(elsewhere, "thread"))
		a.Remedy = "run --placement align moves them together, or pin with taskset and /proc/irq/*/smp_affinity_list"
		a.Fix = FixPlacement
	case apart > 0:
		a.Verdict = Yes
		a.Detail += ": the same node, not the same CPU"
	default:
		a.Verdict = Yes
		a.Detail += ": the same CPU"
	}
	return a
}

func (j judge) nodes(cpus []int) []int {
	var out []int
	for _, cpu := range cpus {
		out = append(out, j.facts.CPUs[cpu].Node)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (j judge) threads(watching []model.EpollContext, used []*NAPI) Answer {
	a := Answer{Question: QuestionThreads}
	queues := len(j.facts.NAPIs)
	a.Detail = fmt.Sprintf("%s for %s", model.Count(len(watching), "context"), model.Count(queues, "queue"))
	for _, c := range watching {
		if n := len(j.waiters(c)); n > 1 {
			a.Verdict = No
			a.Detail = fmt.Sprintf("%s wait for epoll context %d", model.Count(n, "thread"), c.FD)
			a.Consequence = "the thread that finds no event gives the interrupts back while another still works: suspensions are short"
			a.Remedy = "give each thread an epoll context of its own"
			return a
		}
	}
	shared := 0
	for _, n := range used {
		on := 0
		for _, c := range watching {
			if slices.Contains(c.NAPIIDs, n.ID) {
				on++
			}
		}
		if on > 1 {
			shared++
		}
	}
	switch {
	case shared > 0:
		a.Verdict = No
		a.Detail += fmt.Sprintf("; on %s more than one context polls", model.Count(shared, "queue"))
		a.Consequence = "a context that finds no event gives the interrupts back while another still works: suspensions are short"
		a.Remedy = "as many worker threads as queues, each with the sockets of one (memcached -t QUEUES -N QUEUES), or as many queues as threads (ethtool -L)"
	case len(used) < queues:
		a.Verdict = No
		a.Detail += fmt.Sprintf("; %s received for it", model.Count(len(used), "queue"))
		a.Consequence = "the other queues have no application that polls them, and are tuned by deferral only"
		a.Remedy = "as many worker threads as queues, or fewer queues (ethtool -L IFACE combined N)"
	default:
		a.Verdict = Yes
	}
	return a
}

// batch judges the mean time of a batch with a factor of four: batches vary.
func (j judge) batch(used []*NAPI) Answer {
	const spread = 4
	a := Answer{Question: QuestionBatch}
	limit, set := time.Duration(0), false
	for _, n := range used {
		if t := n.Settings.IRQSuspendTimeout; t > 0 && (!set || t < limit) {
			limit, set = t, true
		}
	}
	against := "the suspend timeout"
	if !set {
		limit, against = DefaultSuspend, "a usual suspend timeout"
	}
	var longest time.Duration
	for _, n := range used {
		if n.Suspension != nil && n.Suspension.Length.Count() > 0 {
			longest = max(longest, n.Suspension.Length.Quantile(0.99))
		}
	}
	batch := j.facts.App.Batch
	switch {
	case batch == nil && longest == 0:
		a.Verdict, a.Detail = Unknown, "no batch of events was seen"
		a.Remedy = "ask again under load"
		return a
	case longest > 0:
		a.Detail = fmt.Sprintf("99%% of the suspensions took at most %v; %s is %v", longest.Round(time.Microsecond), against, limit)
	default:
		a.Detail = fmt.Sprintf("%v of CPU time between two waits on average; %s is %v", batch.Round(100*time.Nanosecond), against, limit)
	}
	if longest >= limit || longest == 0 && *batch*spread >= limit {
		a.Verdict = No
		a.Consequence = "the safety timer ends the suspension while the application works, and its interrupts disturb it as before"
		a.Remedy = "a longer suspend timeout (policy key suspend), or smaller batches (the application's maxevents)"
		return a
	}
	a.Verdict = Yes
	return a
}

func safetyTimer(n *NAPI) Answer {
	a := Answer{Question: QuestionSafetyTimer, Subject: n.name()}
	s := n.Suspension
	switch {
	case s == nil:
		a.Verdict, a.Detail = Unknown, "suspensions were not observed"
		a.Remedy = "autotune doctor says which probe is missing"
	case s.Started == 0 && s.Expired == 0:
		a.Verdict, a.Detail = Yes, "nothing was suspended, so it could not fire"
	case s.Expired == 0:
		a.Verdict, a.Detail = Yes, fmt.Sprintf("none of %d suspensions ended with it", s.Started)
	default:
		a.Verdict, a.Detail = No, fmt.Sprintf("%d of %d suspensions ended with it", s.Expired, max(s.Started, s.Expired))
		a.Consequence = "packets waited for the whole suspend timeout: the application stalled, or does not poll this instance"
		a.Remedy = "look for mixed contexts above, for blocking calls in the event loop, or use a longer suspend timeout"
	}
	return a
}

// idle compares the slowest wake-up of the CPUs concerned with the shortest
// flush timeout.
func (j judge) idle(watching []model.EpollContext, used []*NAPI) Answer {
	a := Answer{Question: QuestionIdle}
	var cpus []int
	for _, n := range used {
		cpus = append(cpus, n.CPUs...)
	}
	for _, c := range watching {
		cpus = append(cpus, union(j.waiters(c))...)
	}
	if len(cpus) == 0 {
		for cpu := range j.facts.CPUs {
			cpus = append(cpus, cpu)
		}
	}
	slices.Sort(cpus)
	var worst time.Duration
	state, known := "", false
	for _, cpu := range slices.Compact(cpus) {
		c := j.facts.CPUs[cpu]
		if c.ExitLatency != nil && (!known || *c.ExitLatency > worst) {
			worst, state, known = *c.ExitLatency, c.IdleState, true
		}
	}
	flush, set := time.Duration(0), false
	for _, n := range used {
		if t := n.Settings.GROFlushTimeout; t > 0 && (!set || t < flush) {
			flush, set = t, true
		}
	}
	against := "the flush timeout"
	if !set {
		flush, against = Deferral().GROFlushTimeout, "a usual flush timeout"
	}
	if !known {
		a.Verdict, a.Detail = Unknown, "this host does not report idle states"
		a.Remedy = "a virtual machine's own host decides; on hardware look at /sys/devices/system/cpu/cpu*/cpuidle"
		return a
	}
	a.Detail = fmt.Sprintf("%v to leave %s; %s is %v", worst, state, against, flush)
	if worst > flush {
		a.Verdict = No
		a.Consequence = fmt.Sprintf("a timer that finds its CPU asleep is up to %v late: delays are the idle state's and not the flush timeout's", worst)
		a.Remedy = "limit idle states: /dev/cpu_dma_latency (tuned-adm profile network-latency), power/pm_qos_resume_latency_us of these CPUs, " +
			"or a flush timeout above the latency"
		return a
	}
	a.Verdict = Yes
	return a
}

func union(threads []Thread) []int {
	var out []int
	for _, t := range threads {
		out = append(out, t.CPUs...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// subset reports whether all of a are in b; an empty a is in none.
func subset(a, b []int) bool {
	for _, x := range a {
		if !slices.Contains(b, x) {
			return false
		}
	}
	return len(a) > 0
}
