package policy

import (
	"testing"
	"time"

	"autotune/model"
)

// deferringFeatures are those of a queue under deferral, where no application may
// suspend interrupts.
func deferringFeatures(flush time.Duration, packetRate float64) model.Features {
	return model.Features{
		Queue:      model.Queue{Netns: 1, Ifindex: 2},
		Active:     model.Settings{DeferHardIRQs: 5, GROFlushTimeout: flush},
		PacketRate: packetRate, CostPerPacket: 3500 * time.Nanosecond, Utilisation: packetRate * 3.5e-6,
		Quantile: 200 * time.Microsecond, Median: 80 * time.Microsecond,
		Objective: model.Objective{SLO: 300 * time.Microsecond, Quantile: 0.99},
	}
}

// Of a CPU that deferral fills, the least late windows tell what the timeout does.
func TestBurstsAreNoneOfTheTimeoutsDoing(t *testing.T) {
	const us = time.Microsecond
	see := func(b *greyboxBursts, flush time.Duration, rate, change float64, delays ...time.Duration) {
		for _, d := range delays {
			f := deferringFeatures(flush, rate)
			f.Quantile, f.RateChange = d, change
			b.see(&f)
		}
	}
	for _, tc := range []struct {
		name   string
		fill   func(*greyboxBursts)
		want   float64
		wantOK bool
	}{
		{"two windows", func(b *greyboxBursts) { see(b, 50*us, 250e3, 0, 290*us, 700*us) }, 0, false},
		{"the least late", func(b *greyboxBursts) { see(b, 50*us, 250e3, 0, 500*us, 290*us, 700*us, 320*us) }, 240, true},
		{"at two timeouts", func(b *greyboxBursts) {
			see(b, 100*us, 250e3, 0, 335*us, 600*us)
			see(b, 50*us, 250e3, 0, 900*us)
		}, 235, true},
		{"at another load", func(b *greyboxBursts) { see(b, 50*us, 225e3, 0, 270*us, 271*us, 272*us) }, 0, false},
		{"while load jumped", func(b *greyboxBursts) { see(b, 50*us, 250e3, 0.5, 290*us, 290*us, 290*us) }, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b greyboxBursts
			tc.fill(&b)
			got, ok := b.rest(250e3)
			if ok != tc.wantOK || got != tc.want {
				t.Errorf("rest of the delay is %v us (known: %v), want %v (%v)", got, ok, tc.want, tc.wantOK)
			}
		})
	}
}

// saturated runs a queue whose CPU deferral fills: a window without a burst takes
// 240 us beside the flush timeout, and three of four have a burst.
func saturated(t *testing.T, p *Greybox, flush time.Duration, windows int) (at []time.Duration) {
	t.Helper()
	f := deferringFeatures(flush, 250e3)
	for w := range windows {
		f.Quantile = 240*time.Microsecond + current(f.Active)
		if w%4 != 1 {
			f.Quantile += time.Duration(40*(1+w*7%5)) * time.Microsecond
		}
		d := p.Decide(f)
		if d.Settings.Mode() != model.ModeDeferral {
			t.Fatalf("window %d: %v, %s", w, d.Settings, d.Why)
		}
		if d.Settings != f.Active {
			f.Outcome = model.Outcome{Verdict: model.VerdictApplied, From: f.Active, To: d.Settings, Purpose: d.Purpose}
		} else {
			f.Outcome = model.Outcome{}
		}
		f.Active = d.Settings
		at = append(at, current(f.Active))
	}
	return at
}

// Where every timeout is late in bursts, the one with which the other windows hold
// the SLO is gone to, from either side, and stayed with.
func TestAFullCPUIsLeftTheTimeoutThatHoldsWithoutBursts(t *testing.T) {
	for _, from := range []time.Duration{30 * time.Microsecond, 50 * time.Microsecond, 136 * time.Microsecond} {
		t.Run(from.String(), func(t *testing.T) {
			at := saturated(t, mustGreybox(t), from, 40)
			for w, flush := range at[20:] {
				if flush < 40*time.Microsecond || flush > 60*time.Microsecond {
					t.Fatalf("window %d: %v, want 40 to 60 us; all: %v", 20+w, flush, at)
				}
			}
		})
	}
}

// A load that falls back leads back at once to the timeout that held there, though
// an overload meanwhile bore less.
func TestAFallOfTheLoadLeadsBackAtOnce(t *testing.T) {
	const held = 121 * time.Microsecond
	p := mustGreybox(t)
	low := deferringFeatures(held, 75e3)
	low.CostPerPacket, low.Quantile = 3600*time.Nanosecond, 260*time.Microsecond
	low.Utilisation = 0.27
	for range 20 {
		low.Active = model.Settings{DeferHardIRQs: 10, GROFlushTimeout: held}
		p.Decide(low)
	}
	saturated(t, p, 50*time.Microsecond, 40)
	q := p.queues[low.Queue]
	low.Active.GROFlushTimeout = 50 * time.Microsecond
	c := newGreyboxChoice(p, q, p.devices[greyboxDeviceKey{1, 2}], &low)
	if got := c.longestKept(deferring); got != held {
		t.Errorf("at the low load up to %v is within reach, want %v", got, held)
	}
	high := deferringFeatures(50*time.Microsecond, 250e3)
	c = newGreyboxChoice(p, q, p.devices[greyboxDeviceKey{1, 2}], &high)
	if got := c.longestKept(deferring); got >= held {
		t.Errorf("at the high load %v is within reach, which held at the low one alone", got)
	}
	low.CostPerPacket, low.Quantile, low.RateChange = 4400*time.Nanosecond, 190*time.Microsecond, 75./250-1
	d := p.Decide(low)
	if d.Purpose != model.PurposeReturn && d.Purpose != model.PurposeCost || d.Settings.GROFlushTimeout < held {
		t.Errorf("after the fall: %v for %s (%s), want %v or more at once", d.Settings, d.Purpose, d.Why, held)
	}
}
