package sim

import "math"

// costs is the cost model in the lane's unit, with its exponentials tabled.
type costs struct {
	dataStack, ackStack                                                                         int64
	requestUser, requestSystem, data, ack, tx, poll, busyPoll, busyEntry                        int64
	interrupt, interruptNIC, timerArm, suspend, raise, epollWait, epollEvent, sleep, wake       int64
	idleEntry, softirqCold, interruptTimer                                                      int64
	idleExit, idleExitNIC, idleDeep, interference, interferencePacket, displaced, displacedNear int64
	reuse                                                                                       [1024]int32
	cold                                                                                        [256]int32
}

func newCosts(c *CostModel) costs {
	k := costs{
		requestUser: int64(c.RequestUser), requestSystem: int64(c.RequestSystem),
		data: int64(c.ReceiveData), ack: int64(c.ReceiveACK), tx: int64(c.TxCompletion),
		poll: int64(c.Poll), busyPoll: int64(c.BusyPoll), busyEntry: int64(c.BusyPollEntry),
		interrupt: int64(c.Interrupt), interruptNIC: int64(c.InterruptNIC), timerArm: int64(c.TimerArm), suspend: int64(c.Suspend), raise: int64(c.SoftirqRaise),
		epollWait: int64(c.EpollWait), epollEvent: int64(c.EpollEvent),
		sleep: int64(c.Sleep), wake: int64(c.Wake),
		idleEntry: int64(c.IdleEntry), softirqCold: int64(c.SoftirqCold),
		interruptTimer: int64(c.InterruptTimer), idleExitNIC: int64(c.IdleExitNIC),
		idleExit: int64(c.IdleExit), idleDeep: int64(c.IdleExitDeep),
		interference: int64(c.Interference), interferencePacket: int64(c.InterferencePacket),
		displaced: int64(c.Displaced), displacedNear: int64(c.DisplacedNear),
	}
	k.dataStack = int64(float64(k.data) * c.StackShare)
	k.ackStack = int64(float64(k.ack) * c.StackShare)
	k.data -= k.dataStack
	k.ack -= k.ackStack
	for i := range k.reuse {
		if c.ReuseDistance > 0 {
			k.reuse[i] = int32(float64(c.Reuse) * (1 - math.Exp(-float64(i)/c.ReuseDistance)))
		}
	}
	for i := range k.cold {
		if c.ColdRequests > 0 {
			k.cold[i] = int32(float64(c.Cold) * math.Exp(-float64(i)/c.ColdRequests))
		}
	}
	return k
}
