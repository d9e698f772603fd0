package tuner

import "autotune/model"

// Confirmed returns what each queue was set to that is not being tried: a
// queue on trial has the settings from before its trial. Queues that another
// writer owns, or that are lost, are missing. It is for leaving a host in a
// good state when a run ends early.
func (l *Loop) Confirmed() model.Config {
	out := make(model.Config, len(l.order))
	for _, q := range l.order {
		switch {
		case !q.adopted || q.lost != nil || q.yield.held:
		case q.trial != nil:
			out[q.queue] = q.trial.anchor
		default:
			out[q.queue] = q.expected
		}
	}
	return out
}
