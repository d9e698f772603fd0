// Package tuner owns the loop: it draws samples from a [Source], condenses
// them, asks a [model.Policy], passes what it proposes through the guards, has
// an [Actuator] apply the rest, and writes each decision to a [Journal].
//
// The central type is [Loop]. It reads no clock: time is what samples say, so
// a recorded or simulated source is decided exactly as a live one. The package
// declares the interfaces that it consumes; it may import model and nothing
// else of autotune.
//
// # One window of one queue
//
// The sample's window is merged with those before it until the quantile of the
// objective has enough delays above it. The policy is then asked once, and its
// answer passes the guards from the inside out:
//
//   - evidence: too few delays, lost events, time that the hypervisor or others
//     took, or a setting that is still settling, unless load has outrun it and the
//     policy moves for safety: hold. At a very low rate, back to plain interrupts.
//   - ownership: what is read back is not what was written: yield the queue.
//   - readiness: suspension only while an application drives this one NAPI; what
//     else an order asks for is applied.
//   - bounds: saturate, and say so once.
//   - step limit: shorten moves up.
//   - cooldown: space moves for CPU, and let few queues try at a time.
//   - trial: measure what a move does, then keep or revert it; for a policy
//     whose forecasts hold, watch the move instead.
//   - tripwire: roll back upon one window that cannot wait, or at rest upon two.
//   - breaker: freeze a direction in which moves keep being reverted.
//   - SLO: answer a confirmed breach where the policy does not.
//
// An order (see [model.PurposeOrder]) is stopped by ownership, readiness and
// bounds alone. All queues' moves are applied in one call; what that reads back
// is what the next window is held against.
//
// # Life cycle
//
// A loop holds no resource and needs no closing. It never restores settings:
// whoever made the actuator does, after [Loop.Run] has returned. What the
// guards learned can outlive a loop in a [Memory].
package tuner
