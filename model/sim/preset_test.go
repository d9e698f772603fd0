package sim

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestShippedPresetsLoadAndSurviveARoundTrip(t *testing.T) {
	names := PresetNames()
	if len(names) < 2 {
		t.Fatalf("presets %v, want epyc7662-cx5 and generic", names)
	}
	for _, name := range names {
		p := mustPreset(t, name)
		if p.Name != name || p.About == "" {
			t.Errorf("preset %s names itself %q and says %q of itself", name, p.Name, p.About)
		}
		var b bytes.Buffer
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		again, err := ReadPreset(&b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, again); diff != "" {
			t.Errorf("preset %s changed in a round trip (-want +got):\n%s", name, diff)
		}
	}
}

func TestPresetsThatAreWrongAreRefusedByName(t *testing.T) {
	if _, err := LoadPreset("nothing"); !errors.Is(err, ErrUnknownPreset) {
		t.Errorf("error %v, want ErrUnknownPreset", err)
	}
	var good bytes.Buffer
	if err := mustPreset(t, DefaultPreset).Write(&good); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, from, to, want string }{
		{"a misspelt cost", `"poll_ns"`, `"pol_ns"`, "pol_ns"},
		{"a negative cost", `"poll_ns": `, `"poll_ns": -`, "poll_ns"},
		{"no queues", `"queues": 8`, `"queues": 0`, "host.queues"},
		{"fewer connections than queues", `"connections": 4480`, `"connections": 3`, "host.connections"},
		{"no ring", `"ring": 4096`, `"ring": 0`, "nic.ring"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(good.String(), tt.from, tt.to, 1)
			if text == good.String() {
				t.Fatalf("the preset has no %s", tt.from)
			}
			_, err := ReadPreset(strings.NewReader(text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not name %s", err, tt.want)
			}
		})
	}
}

func FuzzReadPreset(f *testing.F) {
	f.Add([]byte(`{"name":"x","host":{"queues":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ReadPreset(bytes.NewReader(data))
		if err == nil && p.Check() != nil {
			t.Error("accepted what Check refuses")
		}
	})
}

func TestParametersCoverTheirRange(t *testing.T) {
	p := mustPreset(t, DefaultPreset)
	for _, parameter := range Parameters() {
		for _, u := range []float64{0, 0.25, 1} {
			parameter.Set(p, parameter.fromUnit(u))
			if got := parameter.unit(parameter.Value(p)); got < u-0.01 || got > u+0.01 {
				t.Errorf("%s: position %v reads back as %v", parameter.Name, u, got)
			}
		}
	}
}
