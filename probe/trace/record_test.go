package trace

import (
	"encoding/json"
	"errors"
	"testing"

	"autotune/model"
)

// FuzzRecord decodes single lines, which frames with their checksums keep a
// fuzzer from.
func FuzzRecord(f *testing.F) {
	outcome, err := marshalOutcome(NewOutcome(
		model.Config{outcomeQueue(0): {DeferHardIRQs: 1}}, model.Config{outcomeQueue(0): {}},
		errors.Join(queueError(0, "napi-set", model.ErrBusy), errors.New("whole"))))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{
		string(outcome), `{"kind":"apply","wanted":null,"read_back":null,"failures":[{"queue":"1:2:3","op":"x"}],"error":"y","whole":false}`,
		`{"kind":"journal","entry":{"why":"}"}}`, `{"kind":"journal","entry":}`, `{"kind":"journal","entry":1,"entry":2}`, `{"entry":[],"kind":"journal"}`,
		`{"kind":"gap","lost_samples":1,"lost_others":18446744073709551615}`, `{"kind":"end","samples":1,"others":0}`,
		`{"kind":"frame","schema_version":2,"frame":0,"samples_before":0,"others_before":0}`, `{"kind":"later","x":[{}]}`,
		`{"kind":"conditions","at_ns":5,"devices":[{"napis":[{"queue":"1:2:3","cpus":[1]}]}],"cpus":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var r Reader
		record, _, err := r.decode(line)
		if err != nil {
			return
		}
		switch record.Kind {
		case KindJournal:
			if len(record.Entry) > 0 && !json.Valid(record.Entry) {
				t.Errorf("entry %q of %q is no JSON", record.Entry, line)
			}
		case KindApply:
			got, err := record.Outcome.Result()
			if again := NewOutcome(record.Outcome.Asked(), got, err); (again.Error == nil) != (record.Outcome.Error == nil) {
				t.Errorf("%+v answers as %+v", record.Outcome, again)
			}
		default:
		}
	})
}
