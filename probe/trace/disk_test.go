package trace

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"autotune/model"
)

// gatedFile is a file whose writes hang while the gate is shut.
type gatedFile struct {
	*os.File
	shut atomic.Bool
	gate chan struct{}
}

func (f *gatedFile) Write(b []byte) (int, error) {
	if f.shut.Load() {
		<-f.gate
	}
	return f.File.Write(b)
}

func TestADiskThatHangsCostsFramesAndNotTheCaller(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.trace.zst")
	synctest.Test(t, func(t *testing.T) {
		plain, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		f := &gatedFile{File: plain, gate: make(chan struct{})}
		w, err := newWriter(f, f, testHeader(), Options{FlushEvery: -1, GiveUpAfter: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		write := func(at time.Duration) (time.Duration, error) {
			began := time.Now()
			err := w.Write(model.Sample{At: at})
			return time.Since(began), err
		}
		if took, err := write(1); err != nil || took != 0 {
			t.Fatalf("%v, after %v", err, took)
		}
		f.shut.Store(true)
		if took, err := write(2); !errors.Is(err, ErrStuck) || took != 2*time.Second {
			t.Errorf("%v, after %v", err, took)
		}
		// While it hangs nobody waits again.
		if took, err := write(3); !errors.Is(err, ErrStuck) || took != 0 {
			t.Errorf("%v, after %v", err, took)
		}
		f.shut.Store(false)
		close(f.gate)
		synctest.Wait()
		if _, err := write(4); err != nil {
			t.Error(err)
		}
		if err := errors.Join(w.WriteEntry(json.RawMessage(`{}`)), w.Close()); err != nil {
			t.Error(err)
		}
	})
	r, err := Open(path, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var ats []time.Duration
	for record, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if record.Kind == KindSample {
			ats = append(ats, record.Sample.At)
		}
	}
	if s := r.Stats(); len(ats) != 2 || ats[1] != 4 || s.Gaps != (Gap{Samples: 2}) || !s.Ended {
		t.Errorf("samples %v, %+v", ats, s)
	}
}

func TestClosingOnADiskThatHangsEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.trace.zst")
	synctest.Test(t, func(t *testing.T) {
		plain, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		f := &gatedFile{File: plain, gate: make(chan struct{})}
		w, err := newWriter(f, f, Header{}, Options{GiveUpAfter: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		f.shut.Store(true)
		began := time.Now()
		if err := w.Close(); !errors.Is(err, ErrStuck) || time.Since(began) != 2*time.Second {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
		close(f.gate)
		synctest.Wait()
		if err := plain.Close(); err != nil {
			t.Error(err)
		}
	})
}
