package sim_test

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"autotune/model"
	"autotune/model/sim"
	"autotune/probe/trace"

	"github.com/google/go-cmp/cmp"
)

// filled returns the paths of the fields that hold something: pointers, slices
// and maps that are not nil, texts that are not empty. An element's fields are
// filled if those of any element are.
func filled(v any) []string {
	seen := map[string]bool{}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				seen[path] = true
				walk(path, v.Elem())
			}
		case reflect.Slice, reflect.Map:
			if v.IsNil() {
				return
			}
			seen[path] = true
			for i := range v.Len() {
				if v.Kind() == reflect.Slice {
					walk(path, v.Index(i))
				}
			}
		case reflect.String:
			if v.Len() > 0 {
				seen[path] = true
			}
		case reflect.Struct:
			for i := range v.NumField() {
				walk(path+"."+v.Type().Field(i).Name, v.Field(i))
			}
		default:
		}
	}
	walk("Sample", reflect.ValueOf(v))
	var out []string
	for path := range seen {
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}

// liveSamples are a recording of the test bed.
func liveSamples(t *testing.T) []model.Sample {
	t.Helper()
	r, err := trace.Open("../../experiments/counterfactual/testdata/bed/recording.trace.zst", trace.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []model.Sample
	for range 4 {
		s, err := r.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

// TestSamplesFillWhatLiveOnesFill compares with a recording of the test bed, so
// that a policy or a guard cannot tell a simulated host by what is missing.
func TestSamplesFillWhatLiveOnesFill(t *testing.T) {
	live := liveSamples(t)
	want := filled(live[len(live)-1])
	// The recording is older than the list of CPUs, its probes' cost was not
	// measured yet, and a veth pair has no interrupt line.
	beyond := []string{"Sample.Queues.CPUs", "Sample.Probe.Cost", "Sample.Queues.Interrupts"}
	for _, machine := range []struct {
		preset string
		// without are fields of the recorded machine that this one has not.
		without []string
	}{
		{"veth", nil},
		{"epyc7662-cx5", []string{"Sample.Queues.ThreadTime"}}, // no NAPI thread
	} {
		t.Run(machine.preset, func(t *testing.T) {
			preset, err := sim.LoadPreset(machine.preset)
			if err != nil {
				t.Fatal(err)
			}
			s := newSimulator(t, sim.Options{
				Preset: preset, Case: caseNamed(t, "suspend20"), Load: sim.Constant(20e3), Seed: 1, Window: 100 * time.Millisecond,
			})
			next(t, s)
			got := slices.DeleteFunc(filled(next(t, s)), func(path string) bool { return slices.Contains(beyond, path) })
			want := slices.DeleteFunc(slices.Clone(want), func(path string) bool { return slices.Contains(machine.without, path) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("fields of a recorded sample and of a simulated one (-live +simulated):\n%s", diff)
			}
		})
	}
}
