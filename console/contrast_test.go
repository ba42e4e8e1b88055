package console

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every pair of text and ground that the style sheets use meets WCAG 2.2 AA: 4.5 for text, 3 for the outlines of controls
// and for marks (success criteria 1.4.3 and 1.4.11), in both schemes.
func TestContrast(t *testing.T) {
	sheet, err := static.ReadFile("static/tokens.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, ok := strings.Cut(string(sheet), "@media (prefers-color-scheme: dark)")
	if !ok {
		t.Fatal("tokens.css has no dark scheme")
	}
	pairs := []struct {
		front string
		backs []string
		least float64
	}{
		{"text", []string{"ground", "surface", "raised"}, 4.5},
		{"muted", []string{"ground", "surface", "raised"}, 4.5},
		{"accent", []string{"surface", "raised", "accent-soft"}, 4.5},
		{"shadow", []string{"surface", "shadow-soft"}, 4.5},
		{"block", []string{"surface", "block-soft"}, 4.5},
		{"ok", []string{"surface", "ok-soft"}, 4.5},
		{"warn", []string{"surface", "warn-soft"}, 4.5},
		{"line-strong", []string{"ground", "surface", "raised"}, 3},
		{"curve", []string{"surface", "raised"}, 3},
	}
	for scheme, colors := range map[string]map[string]float64{"light": luminances(t, light), "dark": luminances(t, dark)} {
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

// luminances reads the colours of a sheet as relative luminances (WCAG 2.2).
func luminances(t *testing.T, sheet string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(sheet, -1) {
		n, err := strconv.ParseUint(m[2], 16, 32)
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

// What the policy forbids is not in the page: inline scripts and styles, handlers, other hosts, markup made of texts.
func TestPageKeepsItsPolicy(t *testing.T) {
	assets, err := loadAssets()
	if err != nil {
		t.Fatal(err)
	}
	forbidden := []string{`<script>`, `<style`, ` style="`, ` onclick=`, ` onload=`, `http://`, `https://`, `//cdn`, `innerHTML`, `outerHTML`,
		`insertAdjacentHTML`, `document.write`, `eval(`, `new Function`, `setAttribute("style"`, `@import`, `url(`}
	for at, file := range assets {
		body := strings.ReplaceAll(string(file.body), "http://www.w3.org/2000/svg", "") // a name, not an address
		for _, word := range forbidden {
			if strings.Contains(body, word) {
				t.Errorf("%s: holds %s", at, word)
			}
		}
	}
	page := string(assets["/"].body)
	for _, m := range regexp.MustCompile(`(?:src|href)="(/[^"]*)"`).FindAllStringSubmatch(page, -1) {
		if _, ok := assets[m[1]]; !ok {
			t.Errorf("the page refers to %s, which is not there", m[1])
		}
	}
	for at, file := range assets {
		for _, m := range regexp.MustCompile(`from "\./([a-z]+\.js)"`).FindAllStringSubmatch(string(file.body), -1) {
			if _, ok := assets["/js/"+m[1]]; !ok {
				t.Errorf("%s imports %s, which is not there", at, m[1])
			}
		}
	}
	if len(assets) < 10 {
		t.Error(fmt.Sprint("only so many files: ", len(assets)))
	}
}
