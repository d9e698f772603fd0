package model_test

import (
	"testing"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestACPUListReadsAsItWasWritten(t *testing.T) {
	for _, tt := range []struct {
		cpus []int
		want string
	}{
		{nil, ""},
		{[]int{0}, "0"},
		{[]int{0, 1}, "0-1"},
		{[]int{0, 2, 3, 4, 8}, "0,2-4,8"},
	} {
		if got := model.FormatCPUList(tt.cpus); got != tt.want {
			t.Errorf("%v is written %q, want %q", tt.cpus, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var cpus []int
		next := 0
		for range rapid.IntRange(1, 40).Draw(t, "CPUs") {
			next += rapid.IntRange(1, 3).Draw(t, "gap")
			cpus = append(cpus, next)
		}
		got, err := model.ParseCPUList(model.FormatCPUList(cpus))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cpus, got); diff != "" {
			t.Errorf("CPUs (-want +got):\n%s", diff)
		}
	})
}
