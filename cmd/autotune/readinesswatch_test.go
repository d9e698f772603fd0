package main

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/model/readiness"
)

func TestProcessesThatReceiveNothingAreIdle(t *testing.T) {
	const serves, sleeps = 10, 11
	watch := newReadinessWatch(t.TempDir())
	watch.app(sleeps).comm = "sleeps"
	idle := func(pid int) bool { return watch.facts(pid, nil, model.Conditions{}).App.Idle }
	if idle(sleeps) {
		t.Error("idle before anything was watched")
	}
	watch.add(&model.Sample{Span: time.Second, Apps: []model.AppSample{{PID: serves, Contexts: []model.EpollContext{}}}})
	if idle(serves) || !idle(sleeps) {
		t.Errorf("idle: %v and %v, want false and true", idle(serves), idle(sleeps))
	}
	answers := readiness.Judge(watch.facts(sleeps, nil, model.Conditions{}))
	const want = "it received nothing on these interfaces while it was watched"
	if len(answers) != 1 || answers[0].Verdict != readiness.Unknown || answers[0].Detail != want {
		t.Errorf("answers %+v, want one that says %q", answers, want)
	}
}
