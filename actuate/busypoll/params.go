package busypoll

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// Params are the busy-poll parameters of an epoll context (struct epoll_params
// in include/uapi/linux/eventpoll.h, Linux 6.9) or of a socket (SO_BUSY_POLL,
// SO_BUSY_POLL_BUDGET and SO_PREFER_BUSY_POLL).
type Params struct {
	// Usecs is for how long to poll before sleeping, in microseconds; at most
	// 2^31-1.
	Usecs uint32 `json:"busy_poll_usecs"`
	// Budget is the packets per poll; 0 is the kernel's own choice, and above
	// [MaxBudget] it asks for CAP_NET_ADMIN.
	Budget uint16 `json:"busy_poll_budget"`
	Prefer bool   `json:"prefer_busy_poll"`
}

const (
	// MaxUsecs is the kernel's limit.
	MaxUsecs = math.MaxInt32
	// MaxBudget is the largest budget that needs no privilege:
	// NAPI_POLL_WEIGHT.
	MaxBudget = 64
)

// FromModel returns the parameters that settings ask for.
func FromModel(b model.BusyPoll) Params {
	return Params{Usecs: uint32(b.Span / time.Microsecond), Budget: b.Budget, Prefer: b.Prefer}
}

func (p Params) String() string {
	prefer := "off"
	if p.Prefer {
		prefer = "on"
	}
	return fmt.Sprintf("usecs=%d,budget=%d,prefer=%s", p.Usecs, p.Budget, prefer)
}

// Parameter names one of [Params] as the kernel does.
type Parameter string

// The parameters.
const (
	ParameterUsecs  Parameter = "busy_poll_usecs"
	ParameterBudget Parameter = "busy_poll_budget"
	ParameterPrefer Parameter = "prefer_busy_poll"
)

// Parameters lists them in a fixed order.
func Parameters() [3]Parameter {
	return [3]Parameter{ParameterUsecs, ParameterBudget, ParameterPrefer}
}

// Of returns the parameter's value in p; 1 is on.
func (n Parameter) Of(p Params) uint32 {
	switch {
	case n == ParameterUsecs:
		return p.Usecs
	case n == ParameterBudget:
		return uint32(p.Budget)
	case p.Prefer:
		return 1
	default:
		return 0
	}
}

// With returns p with the parameter set to v.
func (n Parameter) With(p Params, v uint32) Params {
	switch n {
	case ParameterUsecs:
		p.Usecs = v
	case ParameterBudget:
		p.Budget = uint16(v)
	default:
		p.Prefer = v != 0
	}
	return p
}
