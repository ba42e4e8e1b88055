package chart

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Series that are apart stand on the ground beside each other: no column, and no axis, is of their sum. What is what
// stands in words, too.
func TestSeriesThatAreApartMakeNoSum(t *testing.T) {
	c := Columns{
		Name: "requests", Unit: "requests per 1 h", From: traffic.At(time.Date(2026, 11, 20, 5, 0, 0, 0, time.UTC)),
		Step: time.Hour, Apart: true,
		Series: []Series{{Name: "refused", Class: "refused", Values: []float64{40, 0, 40}}, {Name: "would have been",
			Class: "would", Values: []float64{0, 20, 40}}},
	}
	wide, _, _ := strings.Cut(string(c.SVG()), "</svg>")
	type mark struct{ x, width, bottom float64 }
	marks := map[string][]mark{}
	for _, m := range regexp.MustCompile(`<rect class="mark ([a-z]+)" x="([0-9.]+)" y="([0-9.]+)" width="([0-9.]+)" height="([0-9.]+)"/>`).FindAllStringSubmatch(wide, -1) {
		n := func(i int) float64 {
			v, err := strconv.ParseFloat(m[i], 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		marks[m[1]] = append(marks[m[1]], mark{n(2), n(4), n(3) + n(5)})
	}
	real, would := marks["refused"], marks["would"]
	if len(real) != 2 || len(would) != 2 {
		t.Fatalf("marks %v", marks)
	}
	for _, m := range append(real, would...) {
		if m.bottom != real[0].bottom {
			t.Errorf("a column stands on another one: %v", marks)
		}
	}
	if half := real[1].width; half*2 > real[0].width+0.2 || would[1].x < real[1].x+half-0.2 ||
		would[0].width != real[0].width {
		t.Errorf("two of a step are not beside each other: %v", marks)
	}
	if strings.Contains(wide, ">80<") || !strings.Contains(wide, ">40<") {
		t.Errorf("the axis is of a sum: %s", wide)
	}
	if !strings.Contains(wide, "<title>20 Nov 07:00 to 08:00 UTC: 40 refused, 40 would have been</title>") {
		t.Errorf("no words for the last step: %s", wide)
	}
	if legend := string(c.Legend()); !strings.Contains(legend, `<rect class="mark refused"`) ||
		!strings.Contains(legend, "</svg>would have been</li>") {
		t.Errorf("legend %s", legend)
	}
}
