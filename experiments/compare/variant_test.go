package compare_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/experiments/compare"
)

// changed lists what a variant changes, in a line.
type changed struct {
	SLO, Interval time.Duration
	Windows       int
	Queues        int
	Load          float64
	Plant         string
	Policies      string
}

func TestVariantsChangeOneThingEach(t *testing.T) {
	base := plan("greybox", "aimd")
	base.Interval, base.Windows, base.References = 250*time.Millisecond, 240, []string{}
	all, err := compare.Variants(base, nil, []string{"greybox:prior=epyc7662-cx5"})
	if err != nil {
		t.Fatal(err)
	}
	const us, ms = time.Microsecond, time.Millisecond
	const usual, misled = "greybox aimd", "greybox aimd greybox:prior=epyc7662-cx5"
	want := map[string]changed{
		"nominal":      {250 * us, 250 * ms, 240, 1, 1, "", usual},
		"slo-150us":    {150 * us, 250 * ms, 240, 1, 1, "", usual},
		"slo-400us":    {400 * us, 250 * ms, 240, 1, 1, "", usual},
		"slo-1ms":      {1 * ms, 250 * ms, 240, 1, 1, "", usual},
		"window-100ms": {250 * us, 100 * ms, 600, 1, 1, "", usual},
		"window-1s":    {250 * us, 1000 * ms, 120, 1, 1, "", usual},
		"window-5s":    {250 * us, 5000 * ms, 60, 1, 1, "", usual},
		"noise-4":      {250 * us, 250 * ms, 240, 1, 1, "noise=4", usual},
		"skew-half":    {250 * us, 250 * ms, 240, 8, 0.2, "skew=0.5", usual},
		"sampled-16":   {250 * us, 250 * ms, 240, 1, 1, "sample-every=16", usual},
		"costs-2":      {250 * us, 250 * ms, 240, 1, 0.5, "costs=2", misled},
		"costs-half":   {250 * us, 250 * ms, 240, 1, 1, "costs=0.5", misled},
		"rtt-20us":     {250 * us, 250 * ms, 240, 1, 1, "rtt=20µs", misled},
	}
	got := map[string]changed{}
	var names []string
	for _, v := range all {
		p := v.Plan
		names = append(names, v.Name)
		got[v.Name] = changed{p.SLO, p.Interval, p.Windows, p.Queues, p.LoadScale, p.Plant.String(), strings.Join(p.Policies, " ")}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variants (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(compare.VariantNames(), names); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if len(base.Policies) != 2 {
		t.Errorf("the base plan has become %v", base.Policies)
	}
}

func TestVariantsThatAreNotThereAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		names []string
		says  string
	}{
		{"unknown", []string{"slo-1s"}, "slo-150us"},
		{"twice", []string{"noise-4", "noise-4"}, "twice"},
	} {
		if _, err := compare.Variants(plan("aimd"), tc.names, nil); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want an error that mentions %s", tc.name, err, tc.says)
		}
	}
}

func TestPlantsHaveNames(t *testing.T) {
	for name, text := range map[string]string{
		"costs-2": "costs=2", "costs-half": "costs=0.5", "rtt-20us": "rtt=20us", "noise-4": "noise=4", "skew-half": "skew=0.5", "sampled-16": "sample-every=16",
	} {
		got, err := compare.ParsePlant([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		want, err := compare.ParsePlant([]string{text})
		if err != nil {
			t.Fatal(err)
		}
		if got != want || got == (compare.Plant{}) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if n := len(compare.PlantNames()); n != 6 {
		t.Errorf("%d names, want 6", n)
	}
	for _, twice := range [][]string{{"costs-2", "costs=3"}, {"costs-3"}} {
		if _, err := compare.ParsePlant(twice); err == nil {
			t.Errorf("%v is taken", twice)
		}
	}
}

func TestReferencesCanBeLeftOut(t *testing.T) {
	p := plan("aimd")
	for _, tc := range []struct {
		references []string
		want       []string
	}{
		{nil, []string{"base", "suspend20", "best-static", "oracle", "oracle-transient", "aimd"}},
		{[]string{}, []string{"base", "best-static", "oracle", "aimd"}},
		{[]string{"suspend20"}, []string{"base", "suspend20", "best-static", "oracle", "aimd"}},
		{[]string{"oracle-transient"}, []string{"base", "best-static", "oracle", "oracle-transient", "aimd"}},
	} {
		p.References = tc.references
		if diff := cmp.Diff(tc.want, p.Contenders()); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.references, diff)
		}
	}
	for _, bad := range []string{"base", "defer20", "worst"} {
		p.References = []string{bad}
		if err := p.Prepare(); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
