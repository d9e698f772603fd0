package demo

import (
	"context"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// Tuners starts tuners on the test bed: probes, policy, guards and actuator.
// The same value serves a whole run, one tuner at a time.
type Tuners interface {
	// Start probes and tunes until the returned Tuning is stopped, or ctx
	// ends. It returns once every probe is attached and the first window has
	// begun.
	//
	// What a policy has learned is kept between calls with the same
	// Contender: the second call goes on with the policy value of the first.
	Start(ctx context.Context, request TuningRequest) (Tuning, error)
}

// TuningRequest says what to tune, how, and to whom to report.
type TuningRequest struct {
	// Contender names whose turn it is.
	Contender string
	// Spec is the policy; empty means one that never proposes a change, under
	// the same probes as any other.
	Spec string
	// Objective is what the tuner is to meet, in terms of the delay that its
	// own probes see.
	Objective model.Objective
	// Window is the length of a sample.
	Window time.Duration
	// Netns is the path of the network namespace to tune in, Ifname and
	// Ifindex the device there, and ServerPID the application that receives.
	Netns     string
	Ifname    string
	Ifindex   int
	ServerPID int
	// Steer has the epoll contexts of ServerPID follow the settings: they
	// prefer busy polling while a setting asks for it, and have their own
	// parameters again once Stop has returned.
	Steer bool
	// Observe is called with every sample and the decisions that followed
	// from it, in order, from one goroutine. It does not block.
	Observe func(model.Sample, []tuner.Entry)
}

// Tuning is a tuner at work.
type Tuning interface {
	// Stop ends it, puts the originals back, and verifies by reading back; an
	// error means that they may not be. No call of Observe follows.
	Stop(ctx context.Context) error
}
