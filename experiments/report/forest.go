package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Forest shows differences with their intervals, one below the other, in per
// cent.
type Forest struct {
	Label string
	// Width is in CSS pixels; zero means 860.
	Width float64
	Marks []Mark
}

// Mark is one difference. Low and High may be infinite.
type Mark struct {
	Name                string
	Estimate, Low, High float64
	// Class picks the colour: "met", "missed", "undecided", or "" for plain.
	Class string
	// Limit is what it is held against; NaN where nothing is.
	Limit float64
	// Rule starts a new group above it.
	Rule bool
}

const (
	forestRow   = 24.0
	forestNames = 190.0
	forestText  = 190.0
)

// SVG returns the plot as an SVG element. Every text in it is escaped.
func (f Forest) SVG() template.HTML {
	width := f.Width
	if width == 0 {
		width = 860
	}
	low, high := -10.0, 10.0
	for _, m := range f.Marks {
		for _, v := range []float64{m.Estimate, m.Low, m.High, m.Limit} {
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	step := NiceMax((high - low) / 6)
	low, high = math.Floor(low/step)*step, math.Ceil(high/step)*step
	height := float64(len(f.Marks))*forestRow + 34
	left, right := forestNames, width-forestText
	x := func(v float64) float64 { return left + (min(max(v, low), high)-low)/(high-low)*(right-left) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart forest" viewBox="0 0 %s %s" role="img" aria-label="%s">`, px(width), px(height), esc(f.Label))
	for i := 0; low+float64(i)*step <= high+step/2; i++ {
		v := low + float64(i)*step
		class := "gridline"
		if math.Abs(v) < step/1e6 {
			v, class = 0, "zero"
		}
		fmt.Fprintf(&b, `<line class="%s" x1="%s" x2="%s" y1="6" y2="%s"/><text class="tick" x="%s" y="%s" text-anchor="middle">%s</text>`,
			class, px(x(v)), px(x(v)), px(height-24), px(x(v)), px(height-9), esc(percent(v, 0)))
	}
	for i, m := range f.Marks {
		y := 6 + forestRow*(float64(i)+0.5)
		if m.Rule && i > 0 {
			fmt.Fprintf(&b, `<line class="rule" x1="0" x2="%s" y1="%s" y2="%s"/>`, px(width), px(y-forestRow/2), px(y-forestRow/2))
		}
		fmt.Fprintf(&b, `<text class="name" x="0" y="%s">%s</text>`, px(y+4), esc(m.Name))
		if math.IsNaN(m.Estimate) {
			fmt.Fprintf(&b, `<text class="value" x="%s" y="%s" text-anchor="end">not known</text>`, px(width), px(y+4))
			continue
		}
		class := "mark"
		if m.Class != "" {
			class += " " + m.Class
		}
		if !math.IsNaN(m.Limit) {
			fmt.Fprintf(&b, `<line class="limit" x1="%s" x2="%s" y1="%s" y2="%s"/>`, px(x(m.Limit)), px(x(m.Limit)), px(y-9), px(y+9))
		}
		fmt.Fprintf(&b, `<line class="%s" x1="%s" x2="%s" y1="%s" y2="%s"/><circle class="%s" cx="%s" cy="%s" r="4"/>`,
			esc(class), px(x(m.Low)), px(x(m.High)), px(y), px(y), esc(class), px(x(m.Estimate)), px(y))
		text := percent(m.Estimate, 1)
		if !math.IsInf(m.Low, 0) && !math.IsInf(m.High, 0) {
			text += " [" + percent(m.Low, 1) + ", " + percent(m.High, 1) + "]"
		}
		fmt.Fprintf(&b, `<text class="value" x="%s" y="%s" text-anchor="end">%s</text>`, px(width), px(y+4), esc(text))
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

func percent(v float64, decimals int) string {
	if v == 0 {
		return "0%"
	}
	return strings.Replace(fmt.Sprintf("%+.*f%%", decimals, v), "-", "\u2212", 1)
}
