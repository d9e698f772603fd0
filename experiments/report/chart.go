package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Chart is one panel: lines over time, from zero, in one unit. It has no
// heading of its own.
type Chart struct {
	// Label says what is shown, to those who cannot see it.
	Label string
	// Width and Height are in CSS pixels; the panel scales with its
	// container. Zero means 420 and 130.
	Width, Height float64
	// XMax and YMax are the ends of the axes. Values above YMax are marked at
	// the edge.
	XMax, YMax float64
	// XUnit and YUnit are written behind the numbers.
	XUnit, YUnit string
	// HideX leaves out the numbers below, for all but the last of panels that
	// stand above each other.
	HideX bool
	// Bands are stretches of the x axis to set apart.
	Bands []Band
	Lines []Line
	// Limits are values to hold lines against.
	Limits []Limit
}

// Band is a stretch of the x axis.
type Band struct {
	From, To float64
	Label    string
	// Shaded gives it a ground of its own.
	Shaded bool
}

// Line is a series of points; one that is NaN or infinite interrupts it, and
// one outside the axes is drawn at their edge.
type Line struct {
	// Class picks the colour from the style sheet: "load", "p50", "p90",
	// "cpu" or "setting".
	Class string
	// Faint draws it thin, as one of many.
	Faint bool
	// Step keeps each value until the next point.
	Step bool
	X, Y []float64
}

// Limit is a horizontal line.
type Limit struct {
	Value float64
	Label string
}

const (
	marginLeft   = 46.0
	marginRight  = 14.0
	marginTop    = 8.0
	marginBottom = 18.0
)

// SVG returns the panel as an SVG element. Every text in it is escaped.
func (c Chart) SVG() template.HTML {
	width, height := c.Width, c.Height
	if width == 0 {
		width = 420
	}
	if height == 0 {
		height = 130
	}
	bottom := height - marginBottom
	if c.HideX {
		bottom = height - 6
	}
	x := func(v float64) float64 { return marginLeft + v/positive(c.XMax)*(width-marginLeft-marginRight) }
	y := func(v float64) float64 { return bottom - v/positive(c.YMax)*(bottom-marginTop) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %s %s" role="img" aria-label="%s">`, px(width), px(height), esc(c.Label))
	for _, band := range c.Bands {
		class := "band"
		if band.Shaded {
			class += " shaded"
		}
		fmt.Fprintf(&b, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`,
			class, px(x(band.From)), px(marginTop), px(x(band.To)-x(band.From)), px(bottom-marginTop))
	}
	for _, tick := range ticks(c.YMax) {
		fmt.Fprintf(&b, `<line class="gridline" x1="%s" x2="%s" y1="%s" y2="%s"/><text class="tick" x="%s" y="%s" text-anchor="end">%s</text>`,
			px(marginLeft), px(width-marginRight), px(y(tick)), px(y(tick)), px(marginLeft-5), px(y(tick)+3.5), esc(Number(tick)))
	}
	if !c.HideX {
		for _, tick := range xTicks(c.XMax) {
			fmt.Fprintf(&b, `<text class="tick" x="%s" y="%s" text-anchor="middle">%s</text>`,
				px(x(tick)), px(height-4), esc(strings.TrimSpace(Number(tick)+" "+c.XUnit)))
		}
	}
	for _, line := range c.Lines {
		c.line(&b, line, x, y)
	}
	for _, limit := range c.Limits {
		if limit.Value > c.YMax {
			continue
		}
		fmt.Fprintf(&b, `<line class="limit" x1="%s" x2="%s" y1="%s" y2="%s"/><text class="limit-label" x="%s" y="%s" text-anchor="end">%s</text>`,
			px(marginLeft), px(width-marginRight), px(y(limit.Value)), px(y(limit.Value)), px(width-marginRight-3), px(y(limit.Value)-4), esc(limit.Label))
	}
	for _, band := range c.Bands {
		if band.Label != "" {
			fmt.Fprintf(&b, `<text class="band-label" x="%s" y="%s" text-anchor="middle">%s</text>`,
				px(x((band.From+band.To)/2)), px(marginTop+11), esc(band.Label))
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func (c Chart) line(b *strings.Builder, line Line, x, y func(float64) float64) {
	class := line.Class
	if line.Faint {
		class += " faint"
	}
	var path strings.Builder
	var above []float64
	broken := true
	for i, at := range line.X {
		if i >= len(line.Y) || !isFinite(line.Y[i]) || !isFinite(at) {
			broken = true
			continue
		}
		at, v := min(max(at, 0), c.XMax), max(line.Y[i], 0)
		if v > c.YMax {
			above = append(above, at)
			v = c.YMax
		}
		switch {
		case broken:
			fmt.Fprintf(&path, "M%s %s", px(x(at)), px(y(v)))
		case line.Step:
			fmt.Fprintf(&path, "V%sH%s", px(y(v)), px(x(at)))
		default:
			fmt.Fprintf(&path, "L%s %s", px(x(at)), px(y(v)))
		}
		broken = false
	}
	if path.Len() > 0 {
		fmt.Fprintf(b, `<path class="line %s" d="%s"/>`, esc(class), path.String())
	}
	for _, at := range above {
		fmt.Fprintf(b, `<path class="above %s" d="M%s %sl-3 5h6z"/>`, esc(class), px(x(at)), px(marginTop-4))
	}
}

// xTicks returns round values from 0 to end.
func xTicks(end float64) []float64 {
	if end <= 0 {
		return []float64{0}
	}
	step := NiceMax(end / 5)
	if step > 1 {
		step = math.Round(step)
	}
	if !(step > 0) { // the end is next to nothing
		return []float64{0}
	}
	var out []float64
	for i := 0.0; i*step <= end*(1+1e-9); i++ {
		out = append(out, i*step)
	}
	return out
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func positive(v float64) float64 {
	if v > 0 {
		return v
	}
	return 1
}

// px writes a length with a tenth of a pixel.
func px(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}

func esc(s string) string { return template.HTMLEscapeString(s) }
