package model_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
)

func TestSplitEventsLoseNothingAndStayInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const span = time.Second
		times := rapid.SliceOfN(rapid.Map(rapid.Int64Range(1, int64(span)), func(n int64) time.Duration { return time.Duration(n) }), 0, 60)
		sorted := func(label string) []time.Duration {
			list := times.Draw(t, label)
			slices.Sort(list)
			return list
		}
		all := model.Events{From: 0, To: span, Lost: 3, Polls: []model.PollEvent{}}
		for i, at := range sorted("polls") {
			all.Polls = append(all.Polls, model.PollEvent{At: at, Work: uint32(i)})
		}
		for i, at := range sorted("requests") {
			send := at + time.Duration(i)*time.Millisecond
			all.Requests = append(all.Requests, model.RequestEvent{Ready: at, Send: &send})
		}
		const most = 8
		joined := model.Events{From: all.From, Polls: []model.PollEvent{}}
		requests := 0
		for _, e := range all.Split(most) {
			if e.From != joined.To {
				t.Fatalf("a span from %v follows one to %v", e.From, joined.To)
			}
			if n := max(len(e.Polls), len(e.Requests)); n > most && e.To-e.From > 1 {
				t.Fatalf("%d of a kind", n)
			}
			if e.Waits != nil {
				t.Fatal("waits that were not observed")
			}
			joined.To = e.To
			joined.Lost += e.Lost
			joined.Polls = append(joined.Polls, e.Polls...)
			requests += len(e.Requests)
		}
		if diff := cmp.Diff(all.Polls, joined.Polls); diff != "" || joined.To != all.To || joined.Lost != all.Lost || requests != len(all.Requests) {
			t.Fatalf("to %v, %d lost, %d requests of %d, polls (-all +joined):\n%s", joined.To, joined.Lost, requests, len(all.Requests), diff)
		}
	})
}
