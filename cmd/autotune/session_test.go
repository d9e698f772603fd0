package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"autotune/actuate"
	"autotune/model"
	"autotune/model/policy"
)

// TestSessionThatCannotBeOpenedSaysSo has the interfaces taken over already
// when the probes refuse.
func TestSessionThatCannotBeOpenedSaysSo(t *testing.T) {
	bed := newBed(t, 1)
	p, err := policy.Parse("aimd")
	if err != nil {
		t.Fatal(err)
	}
	o := sessionOptions{
		namespace: actuate.NamespaceRef{Name: bed.Server().Name}, ifaces: []string{bed.Server().Ifname}, policy: p,
		apply: true, stateDir: t.TempDir(), interval: time.Millisecond,
	}
	for range 2 { // the second finds no lock left
		s, err := openSession(context.Background(), o)
		if err == nil || s != nil || !strings.Contains(err.Error(), "10ms") {
			t.Errorf("%v, %v", s, err)
		}
	}
}

func TestKernelsWithoutInstancesCannotBeMeasured(t *testing.T) {
	err := measurable([]model.NAPI{{Mapping: model.MappingNone}, {Mapping: model.MappingNone}})
	var coded *exitError
	if !errors.As(err, &coded) || coded.code != exitCannot || !strings.Contains(err.Error(), "6.8") {
		t.Errorf("%v", err)
	}
	if err := measurable([]model.NAPI{{ID: 8193}}); err != nil {
		t.Error(err)
	}
}
