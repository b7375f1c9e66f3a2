package main

import (
	"fmt"
	"math"
	"strings"
)

// chart is a drawing of lines over two logarithmic axes.
type chart struct {
	title, x, y    string
	xText, yText   func(float64) string // of a tick
	xTicks, yTicks []float64            // ascending; nil: powers of ten
	series         []series
}

// series is one line. Points ascend in x.
type series struct {
	name   string
	dashed bool // a limit
	points []point
}

// point is a median, and the least and the most of the rounds; without a spread
// all three are alike.
type point struct{ x, y, low, high float64 }

// Sizes in the drawing's own units.
const (
	chartWidth, chartHeight = 820.0, 420.0
	left, right             = 76.0, 220.0
	top, bottom             = 40.0, 52.0
	tickRoom                = 44.0 // what a tick's name needs
)

// colours can be told apart by most people, on white.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"}

// svg draws the chart; empty without a point.
func (c chart) svg() string {
	x, y := newAxis(c.xTicks), newAxis(c.yTicks)
	for _, s := range c.series {
		for _, p := range s.points {
			x.cover(p.x)
			y.cover(p.low)
			y.cover(p.high)
		}
	}
	if !x.used || !y.used {
		return ""
	}
	x.from, x.to = left, chartWidth-right
	y.from, y.to = chartHeight-bottom, top
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="#fff"/>`+"\n", chartWidth, chartHeight)
	fmt.Fprintf(&b, `<text x="%g" y="22" font-size="15">%s</text>`+"\n", left, escape(c.title))
	named := -tickRoom
	for _, v := range x.ticks() {
		at, text := x.at(v), ""
		if at-named >= tickRoom {
			named, text = at, c.xText(v)
		}
		fmt.Fprintf(&b, `<path d="M%.1f %gV%g" stroke="#ddd"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n",
			at, top, chartHeight-bottom, at, chartHeight-bottom+18, escape(text))
	}
	for _, v := range y.ticks() {
		at := y.at(v)
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, at, chartWidth-right, left-6, at+4, escape(c.yText(v)))
	}
	fmt.Fprintf(&b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", (left+chartWidth-right)/2, chartHeight-12, escape(c.x))
	fmt.Fprintf(&b, `<text transform="translate(16 %.1f) rotate(-90)" text-anchor="middle">%s</text>`+"\n", (top+chartHeight-bottom)/2, escape(c.y))
	for i, s := range c.series {
		s.draw(&b, x, y, colours[i%len(colours)], i)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw writes a line, its spread as bars, and its entry in the legend. Bars stand
// beside each other, so that none hides another's.
func (s series) draw(b *strings.Builder, x, y *axis, colour string, i int) {
	legend, beside := top+8+20*float64(i), 5*float64(i-1)
	dash := ""
	if s.dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	var line strings.Builder
	for i, p := range s.points {
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&line, "%s%.1f %.1f", verb, x.at(p.x), y.at(p.y))
	}
	fmt.Fprintf(b, `<g stroke="%s" fill="none"><path d="%s" stroke-width="2"%s/>`, colour, line.String(), dash)
	for _, p := range s.points {
		if p.low < p.high {
			fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke-width="4" stroke-opacity="0.4"/>`, x.at(p.x)+beside, y.at(p.low), y.at(p.high))
		}
		if !s.dashed {
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x.at(p.x), y.at(p.y), colour)
		}
	}
	at := chartWidth - right + 14
	fmt.Fprintf(b, `<path d="M%g %gH%g" stroke-width="2"%s/></g>`, at, legend, at+22, dash)
	fmt.Fprintf(b, `<text x="%g" y="%g">%s</text>`+"\n", at+28, legend+4, escape(s.name))
}

// axis is a logarithmic scale that grows to cover what it is told.
type axis struct {
	low, high float64
	used      bool
	from, to  float64 // where its ends are drawn
	given     []float64
}

func newAxis(ticks []float64) *axis { return &axis{given: ticks} }

func (a *axis) cover(v float64) {
	if v <= 0 {
		return // has no place on such an axis
	}
	if !a.used {
		a.low, a.high, a.used = v, v, true
		return
	}
	a.low, a.high = min(a.low, v), max(a.high, v)
}

// bounds leave the outermost points on a tick or inside.
func (a *axis) bounds() (low, high float64) {
	if len(a.given) > 1 {
		return min(a.given[0], a.low), max(a.given[len(a.given)-1], a.high)
	}
	low, high = math.Pow(10, math.Floor(math.Log10(a.low))), math.Pow(10, math.Ceil(math.Log10(a.high)))
	if low == high {
		high *= 10
	}
	return low, high
}

func (a *axis) at(v float64) float64 {
	low, high := a.bounds()
	v = min(max(v, low), high)
	return a.from + (a.to-a.from)*(math.Log(v)-math.Log(low))/(math.Log(high)-math.Log(low))
}

func (a *axis) ticks() []float64 {
	if len(a.given) > 1 {
		return a.given
	}
	low, high := a.bounds()
	var all []float64
	for e := math.Round(math.Log10(low)); e <= math.Round(math.Log10(high)); e++ {
		all = append(all, math.Pow(10, e))
	}
	return all
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace
