package demo

import (
	_ "embed" // for the page
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// headerFault asks the API to fail with the status that it names, so that clients have something to try again.
const headerFault = "X-Demo-Fault"

//go:embed page.html
var page []byte

// NewAPI is the service behind the demo's gateway: guest tokens, a catalog, sign-ins, and a page for browsers.
func NewAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathTokens, func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, map[string]any{
			"token": "guest." + r.Header.Get(headerDevice), "preview_seconds": int(window / time.Second),
		})
	})
	mux.HandleFunc("POST "+pathSignIn, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"signed_in": false, "reason": "this is a demo; nobody has an account"})
	})
	mux.HandleFunc("GET "+pathCatalog+"{title}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, map[string]any{"title": r.PathValue("title"), "minutes": 42})
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'")
		_, _ = w.Write(page) // a browser that has gone has no use for it
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(headerFault) == "503" {
			answer(w, http.StatusServiceUnavailable, map[string]any{"error": "try again"})
			return
		}
		if _, pattern := mux.Handler(r); pattern == "" && strings.HasPrefix(r.URL.Path, "/v1/") {
			answer(w, http.StatusNotFound, map[string]any{"error": "POST " + pathTokens + ", POST " + pathSignIn + ", GET " + pathCatalog + "{title}"})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, body map[string]any) {
	text, err := json.Marshal(body)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // a client that has gone has no use for it
}
