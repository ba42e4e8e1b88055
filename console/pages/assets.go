package pages

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history"
)

//go:embed html static
var embedded embed.FS

// asset is one file that pages refer to.
type asset struct {
	body        []byte
	contentType string
	etag        string
}

// contentTypes does not ask the system's tables: a script served as text/plain would not run.
func contentTypes(extension string) string {
	switch extension {
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return ""
}

// loadAssets reads the assets, by name.
func loadAssets() (map[string]asset, error) {
	entries, err := embedded.ReadDir("static")
	if err != nil {
		return nil, err
	}
	out := map[string]asset{}
	for _, e := range entries {
		body, err := embedded.ReadFile("static/" + e.Name())
		if err != nil {
			return nil, err
		}
		kind := contentTypes(path.Ext(e.Name()))
		if kind == "" {
			return nil, fmt.Errorf("%s: no content type is known for it", e.Name())
		}
		sum := sha256.Sum256(body)
		out[e.Name()] = asset{body: body, contentType: kind, etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	return out, nil
}

func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("ETag", a.etag)
	h.Set("Cache-Control", "no-cache") // kept, but asked for each time: a new build shows at once
	if r.Header.Get("If-None-Match") == a.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(a.body)
}

// loadTemplates reads the pages, each with the layout and the parts that all share, by name.
func loadTemplates() (map[string]*template.Template, error) {
	shared, err := template.New("").Funcs(functions()).ParseFS(embedded, "html/shared/*.html")
	if err != nil {
		return nil, err
	}
	entries, err := embedded.ReadDir("html")
	if err != nil {
		return nil, err
	}
	out := map[string]*template.Template{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		name := strings.TrimSuffix(e.Name(), ".html")
		one, err := shared.Clone()
		if err != nil {
			return nil, err
		}
		if out[name], err = one.ParseFS(embedded, "html/"+e.Name()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// functions are what templates write numbers, times and texts with.
func functions() template.FuncMap {
	return template.FuncMap{
		"count":  shown.Count[int64],
		"int":    shown.Count[int],
		"figure": figureText,
		"bytes":  shown.Bytes,
		"few":    shown.Saturating,
		"span":   shown.Span,
		"stamp":  shown.Stamp,
		"clock":  shown.Clock,
		"when":   shown.When,
		"marked": marked,
		"field":  func(i input, wrong string) asked { return asked{i, wrong} },
		"to64":   func(n int) int64 { return int64(n) },
	}
}

// figureText is a number, or a dash where it is not known.
func figureText(f history.Figure) string {
	if f == history.UnknownFigure {
		return "–"
	}
	return shown.Count(int64(f))
}

// marked sets what package shown wrote in place of characters that cannot be seen apart from what a client wrote.
func marked(text string) template.HTML {
	escaped := template.HTMLEscapeString(text)
	return template.HTML(regexp.MustCompile(`\\x[0-9a-f]{2}|\\u\{[0-9a-f]+\}`).ReplaceAllString(escaped, `<span class="odd">$0</span>`)) // #nosec G203 -- escaped above
}
