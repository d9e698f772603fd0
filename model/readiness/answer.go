package readiness

// Question is what is asked before interrupts are suspended.
type Question string

// The questions, in the order of the answers.
const (
	// QuestionEpoll: does the process wait for sockets of the interfaces with
	// epoll at all?
	QuestionEpoll Question = "epoll"
	// QuestionPrefer: does the epoll context prefer busy polling?
	QuestionPrefer Question = "prefer"
	// QuestionUnmixed: are the context's sockets of one NAPI instance?
	QuestionUnmixed Question = "unmixed"
	// QuestionDeferral: are the instance's defer count and flush timeout set?
	QuestionDeferral Question = "deferral"
	// QuestionPlacement: do the context's threads run on the CPU, or at least
	// the node, that polls the instance?
	QuestionPlacement Question = "placement"
	// QuestionThreads: is there one context per queue, and one thread per
	// context?
	QuestionThreads Question = "threads"
	// QuestionBatch: is the application back in epoll_wait before the suspend
	// timeout ends?
	QuestionBatch Question = "batch"
	// QuestionSafetyTimer: did no suspension end with the safety timer?
	QuestionSafetyTimer Question = "safety_timer"
	// QuestionIdle: is a CPU awake again within the flush timeout?
	QuestionIdle Question = "idle_state"
	// QuestionGain: is the application so busy that its own polls find most
	// packets?
	QuestionGain Question = "gain"
)

// Verdict answers a question. Yes is always what suspension needs.
type Verdict string

// The verdicts.
const (
	Yes     Verdict = "yes"
	No      Verdict = "no"
	Unknown Verdict = "unknown"
)

// Fix is what autotune can do about a No by itself.
type Fix string

// The fixes. The empty one means that somebody else has to act.
const (
	// FixPrefer sets prefer_busy_poll on the context (EPIOCSPARAMS).
	FixPrefer Fix = "prefer"
	// FixDeferral sets defer-hard-irqs and gro-flush-timeout (napi-set).
	FixDeferral Fix = "deferral"
	// FixPlacement moves threads and interrupts together.
	FixPlacement Fix = "placement"
)

// Answer is one question about one subject.
type Answer struct {
	Question Question `json:"question"`
	// Subject is what it is about, for example "epoll context 5" or
	// "eth0 queue 1"; empty for the whole process.
	Subject string  `json:"subject"`
	Verdict Verdict `json:"verdict"`
	// Detail is what was seen.
	Detail string `json:"detail"`
	// Consequence and Remedy are empty for a Yes. For an Unknown, Remedy says
	// how it can be found out.
	Consequence string `json:"consequence"`
	Remedy      string `json:"remedy"`
	Fix         Fix    `json:"fix"`
}

// Ready reports whether nothing stands in the way of suspension: no answer is
// No to a question that suspension depends on. What only makes it less useful
// (placement, threads, idle states, little load) does not count.
func Ready(answers []Answer) bool {
	for _, a := range answers {
		switch a.Question {
		case QuestionEpoll, QuestionPrefer, QuestionUnmixed, QuestionDeferral, QuestionSafetyTimer:
			if a.Verdict != Yes {
				return false
			}
		case QuestionBatch:
			if a.Verdict == No {
				return false
			}
		default:
		}
	}
	return true
}
