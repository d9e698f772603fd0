package trace

import (
	"bytes"
	"errors"
	"maps"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"autotune/model"
)

// compress makes one frame of lines.
func compress(tb testing.TB, lines ...string) []byte {
	tb.Helper()
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		tb.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll([]byte(strings.Join(lines, "\n")+"\n"), nil)
}

func headerText(tb testing.TB) string {
	tb.Helper()
	line, err := marshalHeader(testHeader())
	if err != nil {
		tb.Fatal(err)
	}
	return string(line)
}

func TestAFileThatIsNoTraceIsRefusedWithTheReason(t *testing.T) {
	header := headerText(t)
	newer := strings.Replace(header, `"schema_version":3`, `"schema_version":4`, 1)
	older := strings.Replace(header, `"schema_version":3`, `"schema_version":0`, 1)
	rule := strings.Replace(header, `"unit_ns":128`, `"unit_ns":64`, 1)
	tests := []struct {
		name string
		data []byte
		want error
		text string
	}{
		{"empty", nil, ErrNotTrace, "empty"},
		{"plain JSON lines", []byte(header + "\n"), ErrNotTrace, "not zstd-compressed"},
		{"one byte", []byte{0x28}, ErrTruncated, "frame 0"},
		{"other JSON in zstd", compress(t, `{"a":1}`), ErrNotTrace, "first line"},
		{"text in zstd", compress(t, `hello`), ErrNotTrace, "first line"},
		{"header that is not first", compress(t, `{"kind":"sample"}`, header), ErrNotTrace, "first line"},
		{"newer schema", compress(t, newer), ErrSchema, "use a newer autotune"},
		{"older schema", compress(t, older), ErrSchema, "version 0"},
		{"other histogram buckets", compress(t, rule), ErrSchema, "histogram rule"},
		{"header with a wrong type", compress(t, strings.Replace(header, `"host":"server-1"`, `"host":7`, 1)), ErrCorrupt, "header"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewReader(bytes.NewReader(tt.data), ReaderOptions{})
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.text)
			}
			// A salvage makes no trace of it either.
			if _, err := NewReader(bytes.NewReader(tt.data), ReaderOptions{Salvage: true}); err == nil {
				t.Error("salvaged")
			}
		})
	}
}

func sampleText(s model.Sample) string { return string(newEncoder().append(nil, &s)) }

func TestALineThatSaysWrongThingsIsRefused(t *testing.T) {
	good := sampleText(model.Sample{
		Queues: []model.QueueSample{{Delay: &model.Histogram{}, Timer: &model.TimerCounts{}}},
		CPUs:   []model.CPUSample{{}}, Active: model.Config{{}: {}}, Absent: map[model.Queue]string{{}: ""},
		Apps: []model.AppSample{{Contexts: []model.EpollContext{{}}}},
	})
	const v1 = `[{"queue":"0:0:0","napi_id":0,"sample_every":0,`
	const v1Active = `{"queue":"0:0:0","defer_hard_irqs":0,"gro_flush_timeout_ns":0,"irq_suspend_timeout_ns":0}`
	tests := []struct {
		name, old, new, text string
	}{
		{"missing time", `"at_ns":0,`, ``, `"at_ns" is missing`},
		{"null where there is no null", `"lost_events":0`, `"lost_events":null`, "whole number"},
		{"fraction", `"lost_events":0`, `"lost_events":1.5`, "whole number"},
		{"exponent", `"lost_events":0`, `"lost_events":1e3`, "whole number"},
		{"negative count", `"lost_events":0`, `"lost_events":-1`, "whole number"},
		{"leading zero", `"lost_events":0`, `"lost_events":01`, "whole number"},
		{"number over 64 bits", `"lost_events":0`, `"lost_events":18446744073709551616`, "whole number"},
		{"time over 63 bits", `"at_ns":0`, `"at_ns":9223372036854775808`, "whole number"},
		{"NAPI ID over 32 bits", `"napi_id":[0]`, `"napi_id":[4294967296]`, "whole number"},
		{"budget over 16 bits", `"busy_poll_budget":0`, `"busy_poll_budget":65536`, "whole number"},
		{"prefer as a number", `"prefer_busy_poll":false`, `"prefer_busy_poll":0`, "expected false"},
		{"queue without index", `"queue":["0:0:0"]`, `"queue":["0:0"]`, "netns:ifindex:index"},
		{"queue of too many parts", `"queue":["0:0:0"]`, `"queue":["0:0:0:0"]`, "netns:ifindex:index"},
		{"a column left out", `"softirq_polls":[0],`, ``, `"softirq_polls" is missing`},
		{"a column twice", `"softirq_polls":[0]`, `"softirq_polls":[0],"softirq_polls":[0]`, "there twice"},
		{"a column too long", `"softirq_polls":[0]`, `"softirq_polls":[0,0]`, "more than 1 values"},
		{"a column too short", `"softirq_polls":[0]`, `"softirq_polls":[]`, "has 0 values"},
		{"a column of another type", `"softirq_polls":[0]`, `"softirq_polls":0`, "expected '['"},
		{"a null in a column", `"softirq_polls":[0]`, `"softirq_polls":[null]`, "whole number"},
		{"version 1, a poll count left out", `{"queue":["0:0:0"]`, v1 + `"softirq":{"packets":0,"empty":0,"full":0}}],"x":{"queue":["0:0:0"]`, `"polls" is missing`},
		{"version 1, bucket beyond the last", `{"queue":["0:0:0"]`, v1 + `"delay":[[223,1,1]]}],"x":{"queue":["0:0:0"]`, "bucket 224 does not exist"},
		{"version 1, run beyond the last", `{"queue":["0:0:0"]`, v1 + `"delay":[[99999999999]]}],"x":{"queue":["0:0:0"]`, "whole number"},
		{"version 1, bucket twice", `{"queue":["0:0:0"]`, v1 + `"delay":[[3,1],[3,1]]}],"x":{"queue":["0:0:0"]`, "counted twice"},
		{"version 1, empty run", `{"queue":["0:0:0"]`, v1 + `"delay":[[]]}],"x":{"queue":["0:0:0"]`, "without a first bucket"},
		{"version 1, trailing comma", `{"queue":["0:0:0"]`, v1 + `"delay":[[1,2,]]}],"x":{"queue":["0:0:0"]`, "after comma"},
		{"version 1, work beyond the last", `{"queue":["0:0:0"]`, v1 + `"work":[[66,1]]}],"x":{"queue":["0:0:0"]`, "does not exist"},
		{"version 1, queue set twice", `"active":{"queue":["0:0:0"]`, `"active":[` + v1Active + `,` + v1Active + `],"x":{"queue":["0:0:0"]`, "listed twice"},
		{"bucket beyond the last", `"delay":[""]`, `"delay":["$b22"]`, "bucket 224 does not exist"},
		{"first bucket beyond the last", `"delay":[""]`, `"delay":["$c2"]`, "begin with no bucket"},
		{"first bucket far beyond the last", `"delay":[""]`, `"delay":["~18446744073709551615~2"]`, "begin with no bucket"},
		{"difference over 64 bits", `"delay":[""]`, `"delay":["1~18446744073709551616~"]`, "byte 1 of packed counts"},
		{"decimal without an end", `"delay":[""]`, `"delay":["1~7"]`, "byte 1 of packed counts"},
		{"escape without a digit", `"delay":[""]`, `"delay":["1!"]`, "byte 1 of packed counts"},
		{"escape before an escape", `"delay":[""]`, `"delay":["1!!"]`, "byte 1 of packed counts"},
		{"a byte that packs nothing", `"delay":[""]`, `"delay":["1 2"]`, "byte 1 of packed counts"},
		{"packed counts with an escape", `"delay":[""]`, `"delay":["1\u0032"]`, "with an escape"},
		{"rounded, another type", `"delay":[""]`, `"delay_levels":[""]`, "expected a string"},
		{"rounded, and exact", `"delay":[""]`, `"delay":[""],"delay_levels":""`, "there twice"},
		{"rounded, too many", `"delay":[""]`, `"delay_levels":" "`, "more than 1 values"},
		{"rounded, no first count", `"delay":[""]`, `"delay_levels":"1"`, "begin with no bucket"},
		{"rounded, bucket beyond the last", `"delay":[""]`, `"delay_levels":"$b12"`, "bucket 224 does not exist"},
		{"rounded, pair beyond the last", `"delay":[""]`, `"delay_pairs":"!o1"`, "begin with no bucket"},
		{"rounded, below nothing", `"delay":[""]`, `"delay_levels":"113"`, "more than there can be"},
		{"rounded, beyond 64 bits", `"delay":[""]`, `"delay_levels":"1~18446744073709551615~2"`, "more than there can be"},
		{"rounded, a byte that packs nothing", `"delay":[""]`, `"delay_levels":"1~1"`, "byte 1 of packed counts"},
		{"rounded, with an escape", `"delay":[""]`, `"delay_levels":"\u0032"`, "with an escape"},
		{"rounded, of what is no histogram", `"napi_id":[0]`, `"napi_id_levels":""`, `"napi_id" is missing`},
		{"work beyond the last", `"work":[""]`, `"work":["!42"]`, "begin with no bucket"},
		{"queue set twice", `"absent":[`, `"absent":[{"queue":"0:0:0","reason":""},`, "listed twice"},
		{"comma without an element", `"apps":[{`, `"apps":[,{`, "expected '{'"},
		{"cut off", `,"probe":null}`, ``, "expected a comma"},
		{"text after the object", `"probe":null}`, `"probe":null}x`, "after the value"},
		{"deep nesting in an unknown field", `"at_ns":0`, `"new":` + strings.Repeat("[", 100) + `,"at_ns":0`, "nested deeper"},
		{"control character", `"comm":""`, "\"comm\":\"\x01\"", "control character"},
		{"bad escape", `"comm":""`, `"comm":"\x"`, "bad string"},
	}
	var d decoder
	if _, err := d.sample([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bad := strings.Replace(good, tt.old, tt.new, 1)
			if bad == good {
				t.Fatalf("%q does not occur in %s", tt.old, good)
			}
			data := append(compress(t, headerText(t)), compress(t, `{"kind":"frame","schema_version":3,"frame":1,"samples_before":0,"others_before":0}`, bad)...)
			_, _, err := read(bytes.NewReader(data), ReaderOptions{})
			var damage *FrameError
			if !errors.As(err, &damage) || damage.Frame != 1 || !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, want %q", err, tt.text)
			}
		})
	}
}

func TestFieldsAndKindsOfLaterVersionsAreSkipped(t *testing.T) {
	sample := model.Sample{At: 5, Queues: []model.QueueSample{{NAPIID: 7}}, CPUs: []model.CPUSample{}}
	text := sampleText(sample)
	for _, object := range []string{`{"kind":"sample",`, `"queues":{`, `"cpus":{`} {
		text = strings.ReplaceAll(text, object, object[:strings.Index(object, "{")+1]+`"new":{"a":[1,-2.5e+3,true,false,null,"x\"]}",{}],"b":{}},`+object[strings.Index(object, "{")+1:])
	}
	// Known fields in another order, with spaces and an escaped key.
	text = strings.Replace(text, `"at_ns":5,`, ``, 1)
	text = strings.TrimSuffix(text, "}") + `, "at\u005fns" : 5 }`
	header := strings.Replace(headerText(t), `{"kind"`, `{"new":1,"kind"`, 1)
	data := append(compress(t, header),
		compress(t,
			`{"kind":"frame","new":0,"schema_version":3,"frame":1,"samples_before":0,"others_before":0}`,
			`{"kind":"poll_events","columns":[[1,2],[3,4]]}`, text, `{"kind":"poll_events"}`, `{"x":{"kind":"no"},"kind":"other"}`)...)
	var got []model.Sample
	r, err := NewReader(bytes.NewReader(data), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for rec, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rec.Sample)
	}
	if diff := cmp.Diff([]model.Sample{sample}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := map[Kind]uint64{"poll_events": 2, "other": 1}; !maps.Equal(r.Stats().Unknown, want) {
		t.Errorf("unknown kinds %v, want %v", r.Stats().Unknown, want)
	}
}

func TestJoinedTracesAreRefused(t *testing.T) {
	rec := newRecording(t, 2, 1)
	ats, _, err := read(bytes.NewReader(append(bytes.Clone(rec.data), rec.data...)), ReaderOptions{})
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "one by one") || len(ats) != 2 {
		t.Errorf("%d samples, %v", len(ats), err)
	}
}

// Small files that ask for a lot of memory.
func TestHostileFramesCostLittle(t *testing.T) {
	magic := []byte{0x28, 0xb5, 0x2f, 0xfd}
	frame := func(descriptor byte, rest ...byte) []byte {
		return append(append(bytes.Clone(magic), descriptor), rest...)
	}
	// Blocks of one byte that stand for 128 KiB each.
	bomb := frame(0x04, 0x58)
	for range 4096 {
		bomb = append(bomb, 0x02, 0x00, 0x10, 'x')
	}
	bomb = append(bomb, 0x03, 0x00, 0x10, 'x', 0, 0, 0, 0)
	empty := append(frame(0x00, 0x58), make([]byte, 3<<20)...)
	lineBomb := compress(t, `{"kind":"x","pad":"`+strings.Repeat("x", maxLineBytes)+`"}`)
	// A sound line with as many empty histograms as fit, and a mistake at its
	// end.
	polls := `{"polls":0,"packets":0,"empty":0,"full":0}`
	queue := `{"queue":"0:0:0","napi_id":0,"softirq":` + polls + `,"thread":` + polls + `,"busy":` + polls +
		`,"work":"","sample_every":0,"ring_wait":"","socket_wait":"","service":"","delay":""}`
	histograms := compress(t, `{"kind":"frame","schema_version":3,"frame":1,"samples_before":0,"others_before":0}`,
		`{"kind":"sample","queues":[`+strings.Repeat(queue+",", maxLineBytes/(len(queue)+1)-2)+queue+`],"at_ns":null}`)
	tests := []struct {
		name string
		data []byte
		want error
	}{
		{"announces 2^60 bytes", frame(0xc0, 0x58, 0, 0, 0, 0, 0, 0, 0, 0x10, 1, 0, 0), ErrTooLarge},
		{"announces 32 MiB in an empty block", frame(0xa0, 0, 0, 0, 2, 1, 0, 0), ErrCorrupt},
		{"window of 3.75 TiB", frame(0x04, 0xff, 0x01, 0x00, 0x00, 0, 0, 0, 0), ErrTooLarge},
		{"no checksum", frame(0x00, 0x58, 0x01, 0x00, 0x00), ErrCorrupt},
		{"dictionary", frame(0x01, 0x58, 7, 1, 0, 0), ErrCorrupt},
		{"reserved bit", frame(0x08, 0x58, 1, 0, 0), ErrCorrupt},
		{"reserved block", frame(0x00, 0x58, 0x07, 0, 0), ErrCorrupt},
		{"block of 2 MiB", frame(0x00, 0x58, 0xf9, 0xff, 0xff), ErrCorrupt},
		{"512 MiB in 16 KiB", bomb, ErrTooLarge},
		{"a million empty blocks", empty, ErrTooLarge},
		{"line over the limit", lineBomb, ErrTooLarge},
		{"a line full of empty histograms", histograms, ErrCorrupt},
	}
	header := compress(t, headerText(t))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := read(bytes.NewReader(append(bytes.Clone(header), tt.data...)), ReaderOptions{})
			runtime.ReadMemStats(&after)
			var damage *FrameError
			if !errors.Is(err, tt.want) || !errors.As(err, &damage) || damage.Frame != 1 || damage.Offset != int64(len(header)) {
				t.Errorf("got %v, want %v in frame 1", err, tt.want)
			}
			// Ten times this is what a limit left out would show.
			n := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d MiB allocated", n)
			if n > 400 {
				t.Errorf("%d MiB allocated", n)
			}
			if _, _, err := read(bytes.NewReader(append(bytes.Clone(header), tt.data...)), ReaderOptions{Salvage: true}); err != nil {
				t.Errorf("salvage: %v", err)
			}
		})
	}
}

func FuzzReader(f *testing.F) {
	header := compress(f, headerText(f))
	sample := newRealistic(1, 1)
	sample.packets = 50
	valid := append(bytes.Clone(header), compress(f,
		`{"kind":"frame","schema_version":3,"frame":1,"samples_before":0,"others_before":0}`,
		sampleText(sample.next()), `{"kind":"journal","entry":{"a":1}}`, `{"kind":"gap","lost_samples":1,"lost_others":0}`)...)
	f.Add(valid)
	f.Add(header)
	f.Add(valid[:len(valid)-3])
	f.Add(append(bytes.Clone(valid), valid...))
	f.Add(append(bytes.Clone(valid), make([]byte, 100)...))
	f.Add([]byte{0x5a, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff, 'x'})
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x58, 0, 0, 0, 0, 0, 0, 0, 0x10, 1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		strict, _, strictErr := read(bytes.NewReader(data), ReaderOptions{})
		salvaged, stats, err := read(bytes.NewReader(data), ReaderOptions{Salvage: true})
		// What is read strictly is read by a salvage as well.
		if err == nil && len(salvaged) < len(strict) {
			t.Errorf("%d samples, salvaged %d", len(strict), len(salvaged))
		}
		if strictErr == nil && (err != nil || len(stats.Damaged) > 0) {
			t.Errorf("sound, but salvaged with %v and %v", err, stats.Damaged)
		}
	})
}

func FuzzDecodeSample(f *testing.F) {
	source := newRealistic(1, 1)
	source.packets = 30
	f.Add([]byte(sampleText(source.next())))
	f.Add([]byte(sampleText(model.Sample{})))
	f.Add([]byte(sampleText(Round(source.next()))))
	f.Add([]byte(`{"kind":"sample","at_ns":1,"span_ns":2,"lost_events":3,"new":[{"a":"\u00e9"}],"apps":[{"pid":1,"comm":"\"x","cpu_ns":-1}]}`))
	f.Add([]byte(`{"kind":"sample","queues":[{"delay":"42!1~5000~0","softirq":[1,2,3,4]}]}`))
	f.Add([]byte(`{"kind":"sample","queues":[{"delay":[[1,2,3],[9,1]]}],"absent":[{"queue":"1:2:3","reason":"gone"}]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var d decoder
		first, err := d.sample(line)
		if err != nil {
			return
		}
		again, err := d.sample(newEncoder().append(nil, &first))
		if err != nil {
			t.Fatalf("own encoding is refused: %v", err)
		}
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("(-first +again):\n%s", diff)
		}
	})
}
