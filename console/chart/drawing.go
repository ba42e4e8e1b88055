// Package chart draws numbers as SVG, on the server: charts that need no script and no inline style, with axes, units and a
// tooltip for each mark. A chart is drawn twice, wide and narrow, and a style sheet shows the one that fits: texts in a drawing
// that shrinks would shrink with it.
package chart

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"

	"github.com/weirhq/weir/console/shown"
)

// frame is the size of one drawing and of the plot in it, in CSS pixels.
type frame struct {
	class                    string
	width, height            float64
	left, right, top, bottom float64
	ticks                    int // how many texts the horizontal axis has room for
}

// frames are the two drawings of each chart.
func frames() [2]frame {
	return [2]frame{
		{class: "chart wide", width: 1000, height: 230, left: 52, right: 14, top: 26, bottom: 28, ticks: 11},
		{class: "chart narrow", width: 340, height: 200, left: 44, right: 10, top: 26, bottom: 28, ticks: 5},
	}
}

func (f *frame) plotWidth() float64  { return f.width - f.left - f.right }
func (f *frame) plotHeight() float64 { return f.height - f.top - f.bottom }

// drawing is an SVG that is being written.
type drawing struct {
	frame
	out strings.Builder
}

// begin opens a drawing that a screen reader hears as name.
func begin(f frame, name string) *drawing {
	d := &drawing{frame: f}
	fmt.Fprintf(&d.out, `<svg class="%s" viewBox="0 0 %s %s" role="img" aria-label="%s">`, f.class, n(f.width), n(f.height), html.EscapeString(name))
	return d
}

func (d *drawing) end() template.HTML {
	d.out.WriteString("</svg>")
	return template.HTML(d.out.String()) // #nosec G203 -- every text in it went through html.EscapeString
}

func (d *drawing) rect(class string, x, y, width, height float64) {
	fmt.Fprintf(&d.out, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"/>`, class, n(x), n(y), n(width), n(height))
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(&d.out, `<line class="%s" x1="%s" y1="%s" x2="%s" y2="%s"/>`, class, n(x1), n(y1), n(x2), n(y2))
}

func (d *drawing) path(class, way string) {
	fmt.Fprintf(&d.out, `<path class="%s" d="%s"/>`, class, html.EscapeString(way))
}

// text writes at a point, which is its start, middle or end as anchor says.
func (d *drawing) text(class, anchor string, x, y float64, text string) {
	fmt.Fprintf(&d.out, `<text class="%s" text-anchor="%s" x="%s" y="%s">%s</text>`, class, anchor, n(x), n(y), html.EscapeString(text))
}

// told groups what draw draws under a tooltip.
func (d *drawing) told(title string, draw func()) {
	fmt.Fprintf(&d.out, `<g><title>%s</title>`, html.EscapeString(title))
	draw()
	d.out.WriteString("</g>")
}

// vertical draws the vertical axis from 0 to the tick at or above most, with lines across and the unit above it, and gives the
// scale: the y of a value.
func (d *drawing) vertical(most float64, unit string) func(v float64) float64 {
	step, top := niceTop(most)
	scale := func(v float64) float64 { return d.top + d.plotHeight()*(1-v/top) }
	for v := 0.0; v <= top+step/2; v += step {
		class := "grid"
		if v == 0 {
			class = "axis"
		}
		d.line(class, d.left, scale(v), d.width-d.right, scale(v))
		d.text("tick", "end", d.left-6, scale(v)+3.5, shown.Short(v))
	}
	d.text("unit", "start", 2, 9, unit)
	return scale
}

// niceTop divides 0 to most or a little more into two to five steps of 1, 2 or 5 times a power of ten, 1 at least.
func niceTop(most float64) (step, top float64) {
	if most <= 1 {
		return 1, 1
	}
	step = math.Max(1, nice(most/4))
	return step, math.Ceil(most/step) * step
}

// nice is the least of 1, 2, 5 times a power of ten that is not below v.
func nice(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*base >= v*(1-1e-9) {
			return m * base
		}
	}
	return 10 * base
}

// n writes a coordinate, to a tenth of a pixel.
func n(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
