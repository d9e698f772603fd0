package sim

import (
	"context"
	"math"
	"testing"
	"time"
)

// bare is a machine on which nothing costs anything but serving a request, so
// that each queue is a single server.
func bare(service time.Duration) *Preset {
	return &Preset{
		Name:   "bare",
		Host:   Host{Queues: 1, Connections: 200_000, ClockMHz: 1000},
		Cost:   CostModel{RequestUser: service},
		NIC:    NIC{Ring: 1 << 16, RxPackets: 1, TxPackets: 1},
		Client: Client{Retry: 200 * time.Millisecond, ACKShare: 1},
	}
}

func TestWaitsAgreeWithClosedForms(t *testing.T) {
	const service = 10 * time.Microsecond
	tests := []struct {
		name        string
		exponential bool
		utilisation float64
		// wait is the mean wait in units of the service time.
		wait func(rho float64) float64
	}{
		{"M/D/1 at 0.5", false, 0.5, func(rho float64) float64 { return rho / (2 * (1 - rho)) }},
		{"M/D/1 at 0.8", false, 0.8, func(rho float64) float64 { return rho / (2 * (1 - rho)) }},
		{"M/M/1 at 0.5", true, 0.5, func(rho float64) float64 { return rho / (1 - rho) }},
		{"M/M/1 at 0.8", true, 0.8, func(rho float64) float64 { return rho / (1 - rho) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := bare(service)
			p.Cost.ExponentialService = tt.exponential
			r, err := Run(context.Background(), Options{
				Preset: p, Load: Constant(tt.utilisation / service.Seconds()), Seed: 5,
				Duration: 60 * time.Second, Warmup: time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			got := r.AvgUs*1e3/float64(service) - 1
			want := tt.wait(tt.utilisation)
			t.Logf("wait %.4f services, formula %.4f (%+.2f%%)", got, want, 100*(got/want-1))
			if math.Abs(got/want-1) > 0.01 {
				t.Errorf("mean wait is %.4f service times, want %.4f within 1%%", got, want)
			}
			if math.Abs(r.Utilisation-tt.utilisation) > 0.01 {
				t.Errorf("utilisation is %.4f, want %.2f", r.Utilisation, tt.utilisation)
			}
		})
	}
}

func TestMM1QuantilesAreExponential(t *testing.T) {
	const service = 10 * time.Microsecond
	const rho = 0.6
	p := bare(service)
	p.Cost.ExponentialService = true
	r, err := Run(context.Background(), Options{
		Preset: p, Load: Constant(rho / service.Seconds()), Seed: 3,
		Duration: 60 * time.Second, Warmup: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	// The sojourn time of M/M/1 is exponential with mean service/(1-rho).
	mean := float64(service) / 1e3 / (1 - rho)
	for _, q := range []struct{ share, got float64 }{{0.50, r.P50Us}, {0.95, r.P95Us}, {0.99, r.P99Us}} {
		want := -mean * math.Log(1-q.share)
		if math.Abs(q.got/want-1) > 0.02 {
			t.Errorf("quantile %v is %.2f us, want %.2f within 2%%", q.share, q.got, want)
		}
	}
}

// With deferral only, an idle NAPI is polled every flush timeout, so that a
// lone packet waits for half of it on average.
func TestDeferredPacketWaitsHalfTheFlushTimeout(t *testing.T) {
	const flush = 100 * time.Microsecond
	p := bare(0)
	c := Case{Name: "deferral"}
	c.NAPI.DeferHardIRQs, c.NAPI.GROFlushTimeout = 1_000_000, flush
	r, err := Run(context.Background(), Options{
		Preset: p, Case: c, Load: Constant(500), Seed: 9, Duration: 100 * time.Second, Warmup: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := float64(flush/2) / 1e3; math.Abs(r.AvgUs/want-1) > 0.02 {
		t.Errorf("mean delay is %.2f us, want half the timeout, %.2f", r.AvgUs, want)
	}
	if want := 1 / flush.Seconds(); math.Abs(r.Polls/want-1) > 0.02 {
		t.Errorf("%.0f polls/s, want one per timeout, %.0f", r.Polls, want)
	}
}

// In the closed loop the throughput of saturated queues is connections over
// latency plus think time (Little's law).
func TestClosedLoopObeysLittlesLaw(t *testing.T) {
	p := bare(10 * time.Microsecond)
	p.Host.Connections = 500
	p.Client.RoundTrip = 20 * time.Microsecond
	p.Client.Think = 300 * time.Microsecond
	r, err := Run(context.Background(), Options{
		Preset: p, Load: ClosedLoop{}, Seed: 2, Duration: 2 * time.Second, Warmup: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := 500 / ((r.AvgUs + 300) / 1e6); math.Abs(r.QPS/want-1) > 0.001 {
		t.Errorf("%.0f requests/s, Little's law says %.0f", r.QPS, want)
	}
	if want := 1 / 10e-6; math.Abs(r.QPS/want-1) > 0.001 {
		t.Errorf("%.0f requests/s, the server's capacity is %.0f", r.QPS, want)
	}
}
