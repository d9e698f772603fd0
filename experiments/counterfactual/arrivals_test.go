package counterfactual

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"autotune/model"
)

// arrived returns a sample of a second in which so many packets came to each
// queue, and half as many requests.
func arrived(packets ...uint64) *model.Sample {
	s := &model.Sample{Span: time.Second, Active: model.Config{}}
	for i, n := range packets {
		q := model.QueueSample{
			Queue: model.Queue{Ifindex: 2, Index: i}, NAPIID: uint32(8193 + i), Delay: &model.Histogram{},
			Softirq: model.PollCounts{Polls: n, Packets: n},
		}
		q.Delay.Add(50*time.Microsecond, n/2)
		s.Queues = append(s.Queues, q)
	}
	return s
}

func TestArrivalsOfTheBusiestQueuesInStretches(t *testing.T) {
	var r Recording
	for i := range uint64(6) {
		r.Add(arrived(100, 20*(i+1), 400))
	}
	if diff := cmp.Diff([]int{0, 2}, r.Busiest(2)); diff != "" {
		t.Errorf("busiest (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{0, 1, 2}, r.Busiest(9)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	got := r.Arrivals([]int{1, 2}, [][2]int{{0, 2}, {4, 6}}, Bursts{})
	want := [][]float64{{10, 20, 50, 60}, {200, 200, 200, 200}}
	if diff := cmp.Diff(want, got.PerSecond, cmpopts.EquateApprox(0.001, 0)); diff != "" || got.Each != time.Second {
		t.Errorf("of %v (-want +got):\n%s", got.Each, diff)
	}
}

func TestCheckLoadNamesWhatIsMissing(t *testing.T) {
	var empty, idle, unseen, seen Recording
	idle.Add(arrived(0))
	unseen.Add(arrived(1))
	seen.Add(arrived(2))
	for name, r := range map[string]*Recording{"no samples": &empty, "no packet": &idle, "no delay": &unseen} {
		if err := r.CheckLoad(); !errors.Is(err, ErrNothingMeasured) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What requests cost is needed for a prediction, and not for the load.
	if err := seen.CheckLoad(); err != nil {
		t.Error(err)
	}
	if err := seen.Check(); !errors.Is(err, ErrNothingMeasured) {
		t.Errorf("check: %v", err)
	}
}
