package compare

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"autotune/model"
)

const (
	plotWidth  = 11 * vg.Inch
	plotHeight = 2.6 * vg.Inch
	// legendRoom is the share of the horizontal axis that is kept free for the
	// legend.
	legendRoom = 0.14
	// timelinePoints bounds the points of a line.
	timelinePoints = 480
)

// palette tells contenders apart, also for most who confuse colours (after
// P. Tol, "Colour Schemes", SRON/EPS/TN/09-002, 2021); beyond it dashes do.
func palette(i int) (color.Color, []vg.Length) {
	colours := []color.NRGBA{
		{0x33, 0x22, 0x88, 0xff}, {0xcc, 0x66, 0x77, 0xff}, {0x11, 0x77, 0x33, 0xff}, {0xdd, 0xaa, 0x33, 0xff},
		{0x44, 0xaa, 0x99, 0xff}, {0x88, 0x22, 0x55, 0xff}, {0x66, 0x99, 0xcc, 0xff}, {0x66, 0x66, 0x33, 0xff},
	}
	var dash []vg.Length
	if round := i / len(colours); round > 0 {
		dash = []vg.Length{vg.Points(float64(2 + 2*round)), vg.Points(2)}
	}
	return colours[i%len(colours)], dash
}

// reference colours are greys: who is judged stands out.
func (r *Report) colour(name string) (color.Color, []vg.Length) {
	policies := 0
	for _, c := range r.Plan.contenders() {
		if c.name == name && c.spec != "" {
			return palette(policies)
		}
		if c.spec != "" {
			policies++
		}
	}
	grey, dash := uint8(0xbb), []vg.Length{1, 2} // the fixed case
	switch name {
	case refBase:
		grey, dash = 0x99, nil
	case refBestStatic:
		grey, dash = 0x55, []vg.Length{4, 2}
	case refOracle:
		grey, dash = 0x00, nil
	case refOracleTransient:
		grey, dash = 0x33, []vg.Length{6, 2, 1, 2}
	}
	return color.NRGBA{grey, grey, grey, 0xff}, dash
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	for _, s := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		s.Font.Variant, s.Font.Size = "Sans", vg.Points(9)
	}
	p.Title.TextStyle.Font.Size = vg.Points(10)
	p.Title.Padding = vg.Points(4)
	p.Legend.Top = true
	p.Legend.ThumbnailWidth = vg.Points(16)
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(-4), vg.Points(-4)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe4}, color.Gray{0xf2}
	p.Add(grid)
	return p
}

// entry adds a line to the legend. Viewers have wider fonts than the one by which
// names are placed: the blanks keep them off what they name.
func entry(p *plot.Plot, name string, of plot.Thumbnailer) { p.Legend.Add(name+"   ", of) }

// roundTicks labels 1, 2 and 5 of each decade.
type roundTicks struct{}

// Ticks implements [plot.Ticker].
func (roundTicks) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for decade := math.Pow(10, math.Floor(math.Log10(low))); decade <= high; decade *= 10 {
		for n := 1.0; n < 10; n++ {
			v := n * decade
			if v < low || v > high {
				continue
			}
			tick := plot.Tick{Value: v}
			if n == 1 || n == 2 || n == 5 {
				tick.Label = fmt.Sprintf("%.6g", v)
			}
			out = append(out, tick)
		}
	}
	return out
}

// svg renders a plot as an element to be put into a page.
func svg(p *plot.Plot, height vg.Length) (template.HTML, error) {
	c := vgsvg.New(plotWidth, height)
	p.Draw(draw.New(c))
	var out bytes.Buffer
	if _, err := c.WriteTo(&out); err != nil {
		return "", fmt.Errorf("draw a plot: %w", err)
	}
	// The prologue of a file does not belong into a page.
	_, element, found := bytes.Cut(out.Bytes(), []byte("<svg"))
	if !found {
		return "", fmt.Errorf("draw a plot: the canvas wrote no svg element")
	}
	return template.HTML("<svg" + string(element)), nil
}

func line(points plotter.XYs, c color.Color, dash []vg.Length, width float64) (*plotter.Line, error) {
	l, err := plotter.NewLine(points)
	if err != nil {
		return nil, err
	}
	l.Color, l.Dashes, l.Width = c, dash, vg.Points(width)
	return l, nil
}

// paretoPlot shows cost against violations, with intervals.
func (r *Report) paretoPlot(scenario string) (template.HTML, error) {
	p := newPlot("", "violating windows, % (root scale)", "kilocycles per request")
	top, bottom := 0.0, math.Inf(1)
	for _, s := range r.Summaries {
		x, y := s.ViolatingWindows, s.CyclesPerRequest
		if s.Scenario != scenario || math.IsNaN(x.Estimate) || math.IsNaN(y.Estimate) {
			continue
		}
		c, _ := r.colour(s.Contender)
		at := plotter.XY{X: 100 * x.Estimate, Y: y.Estimate / 1e3}
		top, bottom = max(top, at.Y), min(bottom, at.Y)
		dot, err := plotter.NewScatter(plotter.XYs{at})
		if err != nil {
			return "", err
		}
		dot.Color, dot.Radius, dot.Shape = c, vg.Points(4), draw.CircleGlyph{}
		if isReference(s.Contender) || s.Contender == r.Plan.Fixed() {
			dot.Shape = draw.PyramidGlyph{}
		}
		p.Add(dot)
		entry(p, s.Contender, dot)
		for _, bar := range []plotter.XYs{
			{{X: 100 * x.Low, Y: at.Y}, {X: 100 * x.High, Y: at.Y}},
			{{X: at.X, Y: y.Low / 1e3}, {X: at.X, Y: y.High / 1e3}},
		} {
			if !x.Bounded() || !y.Bounded() {
				continue
			}
			l, err := line(bar, c, nil, 1)
			if err != nil {
				return "", err
			}
			p.Add(l)
		}
	}
	if front := r.front(scenario); len(front) > 1 {
		l, err := line(front, color.Gray{0x99}, []vg.Length{1, 3}, 1)
		if err != nil {
			return "", err
		}
		p.Add(l)
		entry(p, "front", l)
	}
	if math.IsInf(bottom, 1) {
		return svg(p, plotHeight)
	}
	limit, err := line(plotter.XYs{{X: 100 * maxViolating, Y: bottom}, {X: 100 * maxViolating, Y: max(top, bottom+0.1)}}, color.NRGBA{0xb4, 0x23, 0x2f, 0xff}, []vg.Length{3, 3}, 1)
	if err != nil {
		return "", err
	}
	p.Add(limit)
	entry(p, "1% of windows", limit)
	// The legend stands beside the points.
	p.X.Min, p.X.Max = 0, max(p.X.Max, 1)*(1+legendRoom)*(1+legendRoom)
	p.X.Scale = rootScale{}
	p.X.Tick.Marker = rootTicks(p.X.Max)
	p.Y.Min, p.Y.Max = p.Y.Min-0.05*(p.Y.Max-p.Y.Min), p.Y.Max+0.05*(p.Y.Max-p.Y.Min)
	return svg(p, 3.4*vg.Inch)
}

// rootScale is an axis from zero on which small shares have room beside large
// ones.
type rootScale struct{}

// Normalize implements [plot.Normalizer].
func (rootScale) Normalize(low, high, x float64) float64 {
	root := func(v float64) float64 { return math.Sqrt(max(0, v)) }
	return (root(x) - root(low)) / (root(high) - root(low))
}

func rootTicks(high float64) plot.ConstantTicks {
	var out plot.ConstantTicks
	for _, v := range []float64{0, 0.1, 0.5, 1, 2, 5, 10, 20, 30, 50, 75, 100} {
		// Ticks too close to zero would run into each other.
		if v <= high && (v == 0 || v >= high/200) {
			out = append(out, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
		}
	}
	return out
}

// front returns the steps along those contenders that no other beats in both
// violations and cost, by estimate.
func (r *Report) front(scenario string) plotter.XYs {
	var points plotter.XYs
	for _, s := range r.Summaries {
		x, y := s.ViolatingWindows.Estimate, s.CyclesPerRequest.Estimate
		if s.Scenario == scenario && !math.IsNaN(x) && !math.IsNaN(y) {
			points = append(points, plotter.XY{X: 100 * x, Y: y / 1e3})
		}
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.Y, b.Y)) })
	var out plotter.XYs
	for _, p := range points {
		if n := len(out); n == 0 {
			out = append(out, p)
		} else if last := out[n-1]; p.Y < last.Y {
			out = append(out, plotter.XY{X: p.X, Y: last.Y}, p)
		}
	}
	return out
}

// timelinePlots show one seed over time: load, delay, cost and setting.
func (r *Report) timelinePlots(scenario string) ([]template.HTML, error) {
	names := []string{refBestStatic, refOracle}
	for _, c := range r.Plan.contenders() {
		if c.spec != "" {
			names = append(names, c.name)
		}
	}
	var cells []*Cell
	for _, name := range names {
		for i := range r.cells {
			if c := &r.cells[i]; c.Scenario == scenario && c.Seed == r.Plan.FirstSeed && c.Contender == name {
				cells = append(cells, c)
			}
		}
	}
	interval := r.Plan.Interval.Seconds()
	series := func(c *Cell, value func(*Window) float64) plotter.XYs {
		stride := (len(c.Windows) + timelinePoints - 1) / timelinePoints
		var out plotter.XYs
		for i := 0; i < len(c.Windows); i += stride {
			// Of several windows the largest value: a violation must not hide.
			best := math.NaN()
			for j := i; j < min(i+stride, len(c.Windows)); j++ {
				if v := value(&c.Windows[j]); !math.IsNaN(v) && !(best >= v) {
					best = v
				}
			}
			if !math.IsNaN(best) {
				out = append(out, plotter.XY{X: float64(i+1) * interval, Y: best})
			}
		}
		return out
	}
	slo := micros(r.Plan.SLO)
	panels := []struct {
		title, unit string
		only        string
		value       func(*Window) float64
		limit       float64
	}{
		{"offered load", "thousand requests/s", refOracle, func(w *Window) float64 { return float64(w.Due) / interval / 1e3 }, 0},
		{fmt.Sprintf("p%g of the delay (above 4 x SLO it is cut)", 100*r.Plan.Quantile), "us", "", func(w *Window) float64 {
			if w.Quantile == nil {
				return math.NaN()
			}
			return min(float64(*w.Quantile)/1e3, 4*slo)
		}, slo},
		{"cost", "kilocycles per request", "", func(w *Window) float64 { return ratio(w.Cycles/1e3, float64(w.Served)) }, 0},
		{"flush timeout, mean of the queues (0: plain interrupts)", "us", "", func(w *Window) float64 { return w.Flush / 1e3 }, 0},
	}
	var out []template.HTML
	for _, panel := range panels {
		p := newPlot(panel.title, "s", panel.unit)
		end := 0.0
		for _, c := range cells {
			if panel.only != "" && c.Contender != panel.only {
				continue
			}
			points := series(c, panel.value)
			if len(points) == 0 {
				continue
			}
			end = max(end, points[len(points)-1].X)
			colour, dash := r.colour(c.Contender)
			l, err := line(points, colour, dash, 1)
			if err != nil {
				return nil, err
			}
			p.Add(l)
			if panel.only == "" {
				entry(p, c.Contender, l)
			}
		}
		if panel.limit > 0 && end > 0 {
			l, err := line(plotter.XYs{{X: 0, Y: panel.limit}, {X: end, Y: panel.limit}}, color.NRGBA{0xb4, 0x23, 0x2f, 0xff}, []vg.Length{3, 3}, 1)
			if err != nil {
				return nil, err
			}
			p.Add(l)
			entry(p, "SLO", l)
		}
		p.X.Min, p.X.Max, p.Y.Min = 0, (1+legendRoom)*end, 0
		element, err := svg(p, plotHeight)
		if err != nil {
			return nil, err
		}
		out = append(out, element)
	}
	return out, nil
}

// cdfPlot shows the distribution of all delays, of all seeds, its tail
// stretched: the vertical axis is the share above, logarithmic.
func (r *Report) cdfPlot(scenario string) (template.HTML, error) {
	p := newPlot("", "delay, us", "share of requests above")
	p.Legend.Top, p.Legend.Left = false, true
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(4), vg.Points(4)
	const least = 1e-5
	low, high := math.Inf(1), 0.0
	for _, c := range r.Plan.contenders() {
		var h model.Histogram
		for i := range r.cells {
			if cell := &r.cells[i]; cell.Scenario == scenario && cell.Contender == c.name {
				h.Merge(&cell.Delay)
			}
		}
		total := float64(h.Count())
		var points plotter.XYs
		above := total
		for i, n := range h.Counts {
			if n == 0 || total == 0 {
				continue
			}
			above -= float64(n)
			_, end := model.HistogramBounds(i)
			points = append(points, plotter.XY{X: micros(end), Y: max(above/total, least)})
			if above/total <= least {
				break
			}
		}
		if len(points) == 0 {
			continue
		}
		low, high = min(low, points[0].X), max(high, points[len(points)-1].X)
		colour, dash := r.colour(c.name)
		l, err := line(points, colour, dash, 1.2)
		if err != nil {
			return "", err
		}
		p.Add(l)
		entry(p, c.name, l)
	}
	if high > 0 {
		slo := micros(r.Plan.SLO)
		l, err := line(plotter.XYs{{X: slo, Y: least}, {X: slo, Y: 1}}, color.NRGBA{0xb4, 0x23, 0x2f, 0xff}, []vg.Length{3, 3}, 1)
		if err != nil {
			return "", err
		}
		p.Add(l)
		entry(p, "SLO", l)
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, roundTicks{}
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = min(low, slo), max(high, slo), least, 1
	}
	return svg(p, 3.4*vg.Inch)
}
