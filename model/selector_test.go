package model_test

import (
	"testing"

	"autotune/model"
)

func TestSelectorsPickProcesses(t *testing.T) {
	groups := func() []string {
		return []string{"/", "/system.slice/memcached.service"}
	}
	for _, tt := range []struct {
		selector string
		want     bool
	}{
		{"pid=12", true},
		{"pid=123", false},
		{"all", true},
		{"comm=memcached", false},
		{"comm=a-name-that-is-longer-than-15", true},
		{"comm=a-name-that-is", false},
		{"cgroup=/", true},
		{"cgroup=/system.slice", true},
		{"cgroup=/system.slice/", true},
		{"cgroup=/system.slice/memcached.service", true},
		{"cgroup=/system.slice/memcached", false},
		{"cgroup=/user.slice", false},
	} {
		s, err := model.ParseSelector(tt.selector)
		if err != nil {
			t.Errorf("%s: %v", tt.selector, err)
			continue
		}
		if got := s.Matches(12, "a-name-that-is-", groups); got != tt.want {
			t.Errorf("%v matches: %v, want %v", s, got, tt.want)
		}
		if s.String() != tt.selector {
			t.Errorf("%s is written %v", tt.selector, s)
		}
		if pid := s.PID(); (pid != 0) != (s.Kind == model.SelectPID) {
			t.Errorf("%v is of process %d", s, pid)
		}
	}
	for _, text := range []string{"", "memcached", "comm=", "pid=0", "pid=x", "pid=-3", "cgroup=system.slice", "exe=/bin/true", "pid=99999999999", "all=", "all=1"} {
		if s, err := model.ParseSelector(text); err == nil {
			t.Errorf("%q was read as %v, want an error", text, s)
		}
	}
}

func TestSelectorsLookAtControlGroupsOnlyWhereTheyDecide(t *testing.T) {
	for _, text := range []string{"pid=12", "comm=x", "all"} {
		s, err := model.ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Matches(12, "x", func() []string {
			t.Errorf("%v asks for control groups", s)
			return nil
		})
	}
	if s, err := model.ParseSelector("pid=007"); err != nil || !s.Matches(7, "", nil) || s.PID() != 7 {
		t.Errorf("pid=007 is %v, %v", s, err)
	}
}
