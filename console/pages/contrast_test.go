package pages

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every pair of text and ground that the style sheets use meets WCAG 2.2 AA: 4.5 for text, 3 for the outlines of controls
// and for marks (success criteria 1.4.3 and 1.4.11), in both schemes.
func TestContrast(t *testing.T) {
	sheet, err := embedded.ReadFile("static/tokens.css")
	if err != nil {
		t.Fatal(err)
	}
	pairs := []struct {
		front string
		backs []string
		least float64
	}{
		{"text", []string{"ground", "surface", "raised"}, 4.5},
		{"muted", []string{"ground", "surface", "raised"}, 4.5},
		{"text", []string{"accent-soft"}, 4.5},
		{"accent", []string{"ground", "surface", "raised", "accent-soft"}, 4.5},
		{"on-chief", []string{"chief", "block"}, 4.5},
		{"shadow", []string{"ground", "surface", "raised", "shadow-soft"}, 4.5},
		{"block", []string{"ground", "surface", "raised", "block-soft"}, 4.5},
		{"ok", []string{"surface", "ok-soft"}, 4.5},
		{"warn", []string{"ground", "surface", "raised", "warn-soft"}, 4.5},
		{"line-strong", []string{"ground", "surface", "raised"}, 3},
		{"curve", []string{"surface", "raised"}, 3},
		{"other", []string{"surface"}, 3},
	}
	for scheme, colors := range map[string]map[string]float64{"light": luminances(t, string(sheet), 2), "dark": luminances(t, string(sheet), 3)} {
		for _, p := range pairs {
			for _, back := range p.backs {
				front, ok1 := colors[p.front]
				ground, ok2 := colors[back]
				if !ok1 || !ok2 {
					t.Fatalf("%s: --%s or --%s is not defined", scheme, p.front, back)
				}
				if ratio := (max(front, ground) + 0.05) / (min(front, ground) + 0.05); ratio < p.least {
					t.Errorf("%s: --%s on --%s has a contrast of %.2f, want %.1f", scheme, p.front, back, ratio, p.least)
				}
			}
		}
	}
}

// Marks of what is real and of what would have been differ by more than their colours, which are among those that are
// tested.
func TestMarksDifferWithoutColour(t *testing.T) {
	sheet, err := embedded.ReadFile("static/chart.css")
	if err != nil {
		t.Fatal(err)
	}
	style := func(class string) string {
		m := regexp.MustCompile(`\.mark\.` + class + ` \{([^}]*)\}`).FindSubmatch(sheet)
		if m == nil {
			t.Fatalf("no style of %s", class)
		}
		return string(m[1])
	}
	real, would := style("refused"), style("would")
	if !strings.Contains(real, "fill: var(--block)") || strings.Contains(real, "dash") || strings.Contains(real,
		"opacity") {
		t.Errorf("what is real is not full: %s", real)
	}
	for _, want := range []string{"stroke: var(--shadow)", "stroke-dasharray: ", "fill-opacity: 0.16"} {
		if !strings.Contains(would, want) {
			t.Errorf("what would have been has no %s: %s", want, would)
		}
	}
}

// luminances reads the colours of a sheet in one scheme, the 2nd or 3rd group, as relative luminances (WCAG 2.2).
func luminances(t *testing.T, sheet string, group int) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\);`).FindAllStringSubmatch(sheet, -1) {
		n, err := strconv.ParseUint(m[group], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		linear := func(shift int) float64 {
			c := float64(n>>shift&255) / 255
			if c <= 0.04045 {
				return c / 12.92
			}
			return math.Pow((c+0.055)/1.055, 2.4)
		}
		out[m[1]] = 0.2126*linear(16) + 0.7152*linear(8) + 0.0722*linear(0)
	}
	return out
}

// What the policy forbids is not in pages: inline scripts and styles, handlers, other hosts, markup made of texts.
func TestPagesKeepTheirPolicy(t *testing.T) {
	s := newScene()
	p := newPages(t, s.options())
	forbidden := []string{`<script>`, `<style`, ` style="`, ` onclick=`, ` onload=`, `https://`, `//cdn`, `innerHTML`, `outerHTML`,
		`insertAdjacentHTML`, `document.write`, `eval(`, `new Function`, `setAttribute("style"`, `.style.`, `@import`, `url(`}
	bodies := map[string]string{}
	for name, at := range addresses(s) {
		_, bodies[name], _ = get(t, p, admin(), at)
		for _, m := range regexp.MustCompile(`(?:src|href)="/assets/([^"]*)"`).FindAllStringSubmatch(bodies[name], -1) {
			if _, ok := p.assets[m[1]]; !ok {
				t.Errorf("%s refers to %s, which is not there", name, m[1])
			}
		}
	}
	for name, file := range p.assets {
		bodies[name] = string(file.body)
		for _, m := range regexp.MustCompile(`from "\./([a-z]+\.js)"`).FindAllStringSubmatch(bodies[name], -1) {
			if _, ok := p.assets[m[1]]; !ok {
				t.Errorf("%s imports %s, which is not there", name, m[1])
			}
		}
	}
	for name, body := range bodies {
		for _, word := range forbidden {
			if strings.Contains(body, word) {
				t.Errorf("%s: holds %s", name, word)
			}
		}
	}
	if len(bodies) < 15 {
		t.Errorf("only so many pages and files: %d", len(bodies))
	}
}
