package demo

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func record(t *testing.T, result Result) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteRecord(&b, result); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func html(t *testing.T, result Result) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteReport(&b, result); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRecordReadsBackWhole(t *testing.T) {
	quick := generated(3)
	quick.Run.Quick, quick.Verdict = true, nil
	bare := generated(4)
	// Whatever can be unknown is.
	r := &bare.Rows[0]
	r.P50, r.P90, r.P99, r.RawP50, r.RawP90, r.RawP99, r.DelayP50, r.DelayP90 = nil, nil, nil, nil, nil, nil, nil, nil
	r.ServerCPU, r.NAPICPU, r.TunerCPU, r.CPUPerRequest, r.MeanFlush, r.OtherCPU = nil, nil, nil, nil, nil, nil
	r.SoftirqPolls, r.ThreadPolls, r.ApplicationPolls, r.TimerFires, r.LostEvents = nil, nil, nil, nil, nil
	w := &bare.Windows[0]
	w.P50, w.P90, w.CPUPerRequest, w.Flush, w.Defer = nil, nil, nil, nil, nil
	bare.Run.Calibration.DelayP90, bare.Run.Parameters = nil, nil
	bare.judge()
	for name, want := range map[string]Result{
		"whole": generated(1), "interrupted": interrupted(2), "quick": quick, "with unknowns": bare,
	} {
		t.Run(name, func(t *testing.T) {
			data := record(t, want)
			got, err := ReadRecord(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !bytes.Equal(data, record(t, got)) {
				t.Error("written again, the record differs")
			}
			if !bytes.Equal(html(t, want), html(t, got)) {
				t.Error("the report of the record differs from that of the run")
			}
		})
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	a, b := generated(7), generated(7)
	if !bytes.Equal(record(t, a), record(t, b)) || !bytes.Equal(html(t, a), html(t, b)) {
		t.Error("two runs with one seed differ")
	}
	if bytes.Equal(record(t, a), record(t, generated(8))) {
		t.Error("two seeds give one record")
	}
}

// TestRecordLinesAreAlike holds each line to the rules of the project's JSON:
// snake case, and every field in every line of a kind.
func TestRecordLinesAreAlike(t *testing.T) {
	fields := map[string]map[string]bool{}
	for i, line := range bytes.Split(bytes.TrimSpace(record(t, interrupted(1))), []byte("\n")) {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(line, &object); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		names := map[string]bool{}
		for name := range object {
			if name != strings.ToLower(name) || strings.ContainsAny(name, " -") {
				t.Errorf("line %d: field %q is not in snake case", i+1, name)
			}
			names[name] = true
		}
		kind := string(object["kind"])
		if before, ok := fields[kind]; ok {
			if diff := cmp.Diff(before, names); diff != "" {
				t.Errorf("line %d of kind %s has other fields (-first +this):\n%s", i+1, kind, diff)
			}
		}
		fields[kind] = names
	}
	for _, kind := range []string{kindRun, kindWindow, kindRow, kindSummary, kindVerdict} {
		if fields[`"`+kind+`"`] == nil {
			t.Errorf("no line of kind %q", kind)
		}
	}
}

func TestReadRecordRefuses(t *testing.T) {
	whole := string(record(t, generated(1)))
	firstLine, rest, _ := strings.Cut(whole, "\n")
	tests := []struct{ name, in, want string }{
		{"nothing", "", `want one line of kind "run"`},
		{"no run", rest, "found 0"},
		{"two runs", firstLine + "\n" + whole, "found 2"},
		{"a line of another kind", whole + `{"kind":"novel"}` + "\n", `kind "novel" is not known`},
		{"a line that is cut off", whole[:len(whole)/2], "line "},
		{"a number as text", firstLine + "\n" + `{"kind":"row","round":"one"}`, "line 2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ReadRecord(strings.NewReader(tt.in))
			if !errors.Is(err, ErrRecord) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want ErrRecord with %q", err, tt.want)
			}
		})
	}
}

func FuzzReadRecord(f *testing.F) {
	var b bytes.Buffer
	small := generated(1)
	small.Rows, small.Windows = small.Rows[:9], small.Windows[:9]
	if err := WriteRecord(&b, small); err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.Clone(b.Bytes()))
	f.Add([]byte(`{"kind":"run","contenders":[{"name":"a"}],"phases":[{"name":"p"}]}`))
	f.Add([]byte(`{"kind":"row","round":-1,"cpu_per_request_ns":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		result, err := ReadRecord(bytes.NewReader(data))
		if err != nil {
			return
		}
		if err := errors.Join(WriteTable(&b, result), WriteReport(&b, result)); err != nil {
			t.Fatal(err)
		}
		b.Reset()
	})
}
