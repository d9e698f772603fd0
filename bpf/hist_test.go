package bpf_test

import (
	"testing"
	"time"

	"autotune/bpf"
	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/cilium/ebpf"
	"pgregory.net/rapid"
)

// failer is what a test and a property have in common.
type failer interface{ Fatalf(string, ...any) }

// kernelBucket runs the bucket rule of hist.h in the kernel.
func kernelBucket(tb failer, program *ebpf.Program, d time.Duration) int {
	got, err := program.Run(&ebpf.RunOptions{Context: []uint64{uint64(d)}})
	if err != nil {
		tb.Fatalf("run the bucket rule on %d ns: %v", d, err)
	}
	return int(got)
}

func loadSelftest(tb testing.TB) *ebpf.Collection {
	tb.Helper()
	testbed.Require(tb)
	spec, err := bpf.LoadSelftest()
	if err != nil {
		tb.Fatal(err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(collection.Close)
	return collection
}

func TestBucketsAreTheSameInTheKernel(t *testing.T) {
	program := loadSelftest(t).Programs[bpf.SelftestProgBucketOf]
	check := func(t failer, d time.Duration) {
		if got, want := kernelBucket(t, program, d), model.HistogramBucket(d); got != want {
			t.Fatalf("%d ns falls into bucket %d in the kernel, %d in Go", d, got, want)
		}
	}
	t.Run("at both ends of every bucket", func(t *testing.T) {
		for i := range model.HistogramBuckets {
			low, high := model.HistogramBounds(i)
			for _, d := range []time.Duration{low - 1, low, low + 1, high - 1, high} {
				check(t, d)
			}
			if got := kernelBucket(t, program, low); got != i {
				t.Errorf("the low end of bucket %d, %v, falls into %d", i, low, got)
			}
		}
	})
	t.Run("beyond the ends", func(t *testing.T) {
		for _, d := range []time.Duration{-1 << 63, -1, 0, 137 * time.Second, 24 * time.Hour, 1<<63 - 1} {
			check(t, d)
		}
	})
	t.Run("anywhere", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			bits := rapid.IntRange(0, 63).Draw(t, "bits")
			check(t, time.Duration(rapid.Int64().Draw(t, "d")>>bits))
		})
	})
}

func TestObjectsHoldTheSizesOfTheModel(t *testing.T) {
	var counts bpf.ReceiveNapiCounts
	// One for each value of enum loop.
	if got, want := len(counts.Work), 5*model.WorkBuckets; got != want {
		t.Errorf("work histograms of %d buckets in the kernel, %d in Go", got, want)
	}
	var delays bpf.ReceiveNapiDelays
	if got := len(delays.Delay.Counts); got != model.HistogramBuckets {
		t.Errorf("duration histogram of %d buckets in the kernel, %d in Go", got, model.HistogramBuckets)
	}
	var waits bpf.ReceiveAppWaits
	if got := len(waits.Events); got != model.WorkBuckets {
		t.Errorf("events histogram of %d buckets in the kernel, %d in Go", got, model.WorkBuckets)
	}
}

func TestBothCollectionsShareTheirMaps(t *testing.T) {
	direct, err := bpf.LoadReceive()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := bpf.LoadReceiveRaw()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(raw.Maps), len(direct.Maps); got != want {
		t.Errorf("%d maps for raw tracepoints, %d for BTF-typed ones", got, want)
	}
	for name, want := range direct.Maps {
		got := raw.Maps[name]
		if got == nil {
			t.Errorf("map %s is missing for raw tracepoints", name)
			continue
		}
		if got.Type != want.Type || got.KeySize != want.KeySize || got.ValueSize != want.ValueSize || got.MaxEntries != want.MaxEntries {
			t.Errorf("map %s is %v for raw tracepoints, %v for BTF-typed ones", name, got, want)
		}
	}
	for name, program := range direct.Programs {
		// Functions of the kernel have no raw form.
		if raw.Programs[name] == nil && program.AttachType != ebpf.AttachTraceFEntry && program.AttachType != ebpf.AttachTraceFExit {
			t.Errorf("program %s is missing for raw tracepoints", name)
		}
	}
}

func TestProgramsSayTheirLicence(t *testing.T) {
	for name, load := range map[string]func() (*ebpf.CollectionSpec, error){
		"receive":   bpf.LoadReceive,
		"raw":       bpf.LoadReceiveRaw,
		"contexts":  bpf.LoadContexts,
		"self test": bpf.LoadSelftest,
	} {
		spec, err := load()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, program := range spec.Programs {
			if program.License != "GPL" {
				t.Errorf("%s: program %s has licence %q", name, program.Name, program.License)
			}
		}
	}
}
