package report

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestNiceMax(t *testing.T) {
	for in, want := range map[float64]float64{
		0: 1, -3: 1, math.NaN(): 1, math.Inf(1): 1, 1: 1, 1.01: 1.5, 216: 300, 300: 300, 41000: 50000, 0.0021: 0.003, 9.1: 10, 16.5: 20,
	} {
		if got := NiceMax(in); math.Abs(got-want) > 1e-9*want {
			t.Errorf("NiceMax(%v) = %v, want %v", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(1e-9, 1e12).Draw(t, "v")
		if got := NiceMax(v); got < v*(1-1e-6) || got > v*1.6 {
			t.Fatalf("NiceMax(%v) = %v, want from there to 1.6 times it", v, got)
		}
	})
}

func TestTicks(t *testing.T) {
	for _, tt := range []struct {
		end  float64
		want []float64
	}{
		{0, []float64{0}}, {300, []float64{0, 100, 200, 300}}, {60, []float64{0, 20, 40, 60}}, {50000, []float64{0, 25000, 50000}},
		{1.5, []float64{0, 0.5, 1, 1.5}}, {1000, []float64{0, 500, 1000}}, {0.3, []float64{0, 0.1, 0.2, 0.3}},
	} {
		if diff := cmp.Diff(tt.want, ticks(tt.end), cmpopts.EquateApprox(1e-9, 0)); diff != "" {
			t.Errorf("ticks(%v) (-want +got):\n%s", tt.end, diff)
		}
	}
	if diff := cmp.Diff([]float64{0, 4, 8, 12, 16}, xTicks(16.5)); diff != "" {
		t.Errorf("xTicks (-want +got):\n%s", diff)
	}
}

func TestNumber(t *testing.T) {
	for in, want := range map[float64]string{
		0: "0", 0.5: "0.5", 2.25: "2.25", 12.5: "12.5", 20: "20", 380: "380", 40000: "40,000", 1234567: "1,234,567", -1234: "-1,234", math.NaN(): "-", math.Inf(1): "-",
	} {
		if got := Number(in); got != want {
			t.Errorf("Number(%v) = %q, want %q", in, got, want)
		}
	}
}

// elements parses the SVG and returns its elements.
func elements(t interface{ Fatalf(string, ...any) }, svg string) []xml.StartElement {
	decoder := xml.NewDecoder(strings.NewReader(svg))
	var out []xml.StartElement
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		if element, ok := token.(xml.StartElement); ok {
			out = append(out, element.Copy())
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func TestChartLines(t *testing.T) {
	nan := math.NaN()
	tests := []struct {
		name  string
		line  Line
		path  string
		above int
	}{
		// The panel is 100 by 126: x from 46 to 86, y from 108 up to 8.
		{"points are joined", Line{Class: "p50", X: []float64{0, 5, 10}, Y: []float64{0, 50, 100}}, "M46 108L66 58L86 8", 0},
		{"an unknown value interrupts", Line{Class: "p50", X: []float64{0, 2, 5, 10}, Y: []float64{0, nan, 50, 100}}, "M46 108M66 58L86 8", 0},
		{"a setting stays until the next point", Line{Class: "setting", Step: true, X: []float64{0, 5}, Y: []float64{0, 100}}, "M46 108V8H66", 0},
		{"what is above the scale is marked at its edge", Line{Class: "p90", X: []float64{0, 10}, Y: []float64{0, 900}}, "M46 108L86 8", 1},
		{"nothing known draws nothing", Line{Class: "p90", X: []float64{0, 10}, Y: []float64{nan, nan}}, "", 0},
		{"fewer values than moments", Line{Class: "p90", X: []float64{0, 10}, Y: []float64{0}}, "M46 108", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			chart := Chart{Label: "a <label>", Width: 100, Height: 126, XMax: 10, YMax: 100, Lines: []Line{tt.line}}
			path, above := "", 0
			for _, e := range elements(t, string(chart.SVG())) {
				class := attribute(e, "class")
				if strings.HasPrefix(class, "line ") {
					path += attribute(e, "d")
				}
				if strings.HasPrefix(class, "above ") {
					above++
				}
			}
			if path != tt.path || above != tt.above {
				t.Errorf("path %q with %d marked, want %q with %d", path, above, tt.path, tt.above)
			}
		})
	}
}

func TestChartLeavesOutALimitBeyondTheScale(t *testing.T) {
	for limit, want := range map[float64]int{50: 1, 200: 0} {
		chart := Chart{XMax: 1, YMax: 100, Limits: []Limit{{limit, "SLO"}}}
		if got := strings.Count(string(chart.SVG()), `class="limit"`); got != want {
			t.Errorf("limit %v: drawn %d times, want %d", limit, got, want)
		}
	}
}

// TestChartsAreSoundSVG draws whatever numbers come.
func TestChartsAreSoundSVG(t *testing.T) {
	number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1}))
	rapid.Check(t, func(t *rapid.T) {
		f := Forest{Label: rapid.StringMatching(`[ -~]*`).Draw(t, "label")}
		for range rapid.IntRange(0, 4).Draw(t, "marks") {
			estimate := rapid.OneOf(rapid.Float64Range(-100, 1e6), rapid.Just(math.NaN())).Draw(t, "estimate")
			f.Marks = append(f.Marks, Mark{
				Name: rapid.StringMatching(`[ -~]*`).Draw(t, "name"), Estimate: estimate,
				Low: estimate - rapid.Float64Range(0, 10).Draw(t, "below"), High: math.Inf(1), Limit: math.NaN(), Rule: true,
			})
		}
		lines := rapid.SliceOfN(number, 0, 20).Draw(t, "values")
		c := Chart{
			Label: "label", XMax: rapid.Float64Range(0, 100).Draw(t, "end"), YMax: rapid.Float64Range(0, 100).Draw(t, "top"),
			Lines: []Line{{Class: "p50", X: rapid.SliceOfN(number, len(lines), len(lines)).Draw(t, "moments"), Y: lines}},
		}
		for _, svg := range []string{string(f.SVG()), string(c.SVG())} {
			elements(t, strings.ToValidUTF8(svg, ""))
			if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
				t.Fatalf("a coordinate is no number: %s", svg)
			}
		}
	})
}

func TestForest(t *testing.T) {
	f := Forest{Marks: []Mark{
		{Name: "a", Estimate: -29.3, Low: -31, High: -26.9, Class: "met", Limit: -8},
		{Name: "b", Estimate: 4, Low: math.Inf(-1), High: math.Inf(1), Limit: math.NaN()},
		{Name: "c", Estimate: math.NaN(), Low: math.NaN(), High: math.NaN(), Limit: math.NaN()},
	}}
	svg := string(f.SVG())
	for _, want := range []string{"\u221229.3% [\u221231.0%, \u221226.9%]", ">+4.0%<", "not known", `class="mark met"`} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in %s", want, svg)
		}
	}
	if n := strings.Count(svg, `class="limit"`); n != 1 {
		t.Errorf("%d limits, want 1", n)
	}
}
