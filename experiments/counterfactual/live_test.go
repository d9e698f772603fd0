package counterfactual

import (
	"errors"
	"testing"
)

func TestWhatWasMeasuredBelongsToTheRecording(t *testing.T) {
	const windows = 40
	for _, tc := range []struct {
		name   string
		change func(*Live)
		want   error
	}{
		{"it does", func(*Live) {}, nil},
		{"a load without blocks", func(l *Live) { l.Loads = append(l.Loads, 9000) }, ErrMeasured},
		{"a block beyond the recording", func(l *Live) { l.Blocks[1][0][1] = windows + 1 }, ErrMeasured},
		{"a block before it", func(l *Live) { l.Blocks[0][0][0] = -1 }, ErrMeasured},
		{"a block of nothing", func(l *Live) { l.Blocks[0][0][1] = 0 }, ErrMeasured},
		{"a cell of no load", func(l *Live) { l.Cells[0].Load = 2 }, ErrMeasured},
		{"a cell of a load below 0", func(l *Live) { l.Cells[0].Load = -1 }, ErrMeasured},
	} {
		t.Run(tc.name, func(t *testing.T) {
			live := Live{
				Loads: []float64{5000, 15000}, Blocks: [][][2]int{{{0, 20}}, {{20, windows}}},
				Cells: []LiveCell{{Setting: "base", Load: 1}},
			}
			tc.change(&live)
			if err := live.check(windows); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}
