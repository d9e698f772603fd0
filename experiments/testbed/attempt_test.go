package testbed

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bystander is a test that may fail without failing this one.
type bystander struct {
	testing.TB
	failed bool
}

func (b *bystander) Fail()        { b.failed = true }
func (b *bystander) Failed() bool { return b.failed }

func TestAnAttemptThatAgreesIsTheLast(t *testing.T) {
	for _, tt := range []struct {
		name    string
		measure func(tb testing.TB, n int)
		want    []string
		failed  bool
	}{
		{"at once", func(testing.TB, int) {}, []string{"measure 1", "clean 1"}, false},
		{
			"after an error",
			func(tb testing.TB, n int) {
				if n < 2 {
					tb.Error("disturbed")
				}
			},
			[]string{"measure 1", "clean 1", "measure 2", "clean 2"},
			false,
		},
		{
			"after two that could not go on",
			func(tb testing.TB, n int) {
				if n < 3 {
					tb.Fatalf("disturbed for the %d. time", n)
				}
			},
			[]string{"measure 1", "clean 1", "measure 2", "clean 2", "measure 3", "clean 3"},
			false,
		},
		{
			"never",
			func(tb testing.TB, _ int) { tb.Errorf("wrong") },
			[]string{"measure 1", "clean 1", "measure 2", "clean 2", "measure 3", "clean 3", "measure 4", "clean 4"},
			true,
		},
		{
			"but breaks what holds always",
			func(tb testing.TB, _ int) { Always(tb).Fail() },
			[]string{"measure 1", "clean 1"},
			true,
		},
		{
			"and is then skipped",
			func(tb testing.TB, n int) {
				if n > 1 {
					tb.Skip("the machine has changed")
				}
				tb.Error("disturbed")
			},
			[]string{"measure 1", "clean 1", "measure 2", "clean 2"},
			true,
		},
		{
			"but leaves something behind",
			func(tb testing.TB, _ int) { tb.Cleanup(func() { tb.Fatal("cannot be removed") }) },
			[]string{"measure 1", "clean 1"},
			true,
		},
		{
			"and what one leaves behind fails the test",
			func(tb testing.TB, n int) {
				tb.Cleanup(func() { tb.Error("cannot be removed") })
				tb.Error("disturbed")
			},
			[]string{"measure 1", "clean 1"},
			true,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &bystander{TB: t}
			var did []string
			n := 0
			Attempt(b, func(tb testing.TB) {
				n++
				turn := n
				did = append(did, fmt.Sprintf("measure %d", turn))
				tb.Cleanup(func() { did = append(did, fmt.Sprintf("clean %d", turn)) })
				if err := tb.Context().Err(); err != nil {
					t.Errorf("the context of attempt %d has ended: %v", n, err)
				}
				tb.Cleanup(func() {
					if tb.Context().Err() == nil {
						t.Error("the context outlives the attempt")
					}
				})
				tt.measure(tb, turn)
			})
			if diff := cmp.Diff(tt.want, did); diff != "" || b.failed != tt.failed {
				t.Errorf("failed %t, want %t; steps (-want +got):\n%s", b.failed, tt.failed, diff)
			}
		})
	}
}

// What panics in an attempt is cleaned up after, and panics in the test.
func TestAnAttemptThatPanicsCleansUp(t *testing.T) {
	cleaned := false
	defer func() {
		if r := recover(); r == nil || !cleaned {
			t.Errorf("recovered %v; cleaned up: %t", r, cleaned)
		}
	}()
	Attempt(t, func(tb testing.TB) {
		tb.Cleanup(func() { cleaned = true })
		panic("broken")
	})
}
