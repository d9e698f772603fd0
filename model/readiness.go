package model

import "fmt"

// Readiness is whether a NAPI instance may be suspended.
type Readiness struct {
	// Ready tells that an application prefers busy polling on the instance, or
	// may be made to, and that no context would stall another instance.
	Ready bool
	// Steered tells that the preference is the run's to set: settings that
	// suspend must then ask for it ([BusyPoll.Prefer]).
	Steered bool
	// Why says what is missing; empty when Ready.
	Why string
}

// SuspensionReadiness judges by the applications that a sample lists. An epoll
// context polls one NAPI instance at a time (fs/eventpoll.c,
// ep_set_busy_poll_napi_id): where it also holds sockets of another, that one
// stays suspended until the safety timer, so one such context forbids it for
// all.
func SuspensionReadiness(apps []AppSample, napiID uint32) Readiness {
	switch {
	case apps == nil:
		return Readiness{Why: "applications were not observed"}
	case napiID == 0:
		return Readiness{Why: "the NAPI ID of the queue is not known"}
	}
	var out Readiness
	watched := ""
	for i := range apps {
		app := &apps[i]
		for j := range app.Contexts {
			c := &app.Contexts[j]
			if !c.watches(napiID) {
				continue
			}
			if !c.Prefer && !app.Selected {
				watched = fmt.Sprintf("; %s (pid %d) receives there without", app.Comm, app.PID)
				continue
			}
			if c.MoreNAPIs {
				return Readiness{Why: fmt.Sprintf("epoll context %d of %s (pid %d) may mix sockets of several NAPIs: more contexts watch one of its process than can be listed", c.FD, app.Comm, app.PID)}
			}
			if c.Mixed() {
				return Readiness{Why: fmt.Sprintf("epoll context %d of %s (pid %d) mixes sockets of NAPIs %v, and the others would stall", c.FD, app.Comm, app.PID, c.NAPIIDs)}
			}
			out.Ready = true
			out.Steered = out.Steered || app.Selected
		}
	}
	if !out.Ready {
		out.Why = fmt.Sprintf("no application was seen to prefer busy polling on NAPI %d%s", napiID, watched)
	}
	return out
}

// watches reports whether the context holds sockets of the instance, or may.
func (c *EpollContext) watches(napiID uint32) bool {
	if c.MoreNAPIs {
		return true
	}
	for _, id := range c.NAPIIDs {
		if id == napiID {
			return true
		}
	}
	return false
}
