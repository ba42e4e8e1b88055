package adversary

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

// operation is what the rules of this package watch, when it is asked for with POST.
const operation = "/v1/guest-tokens"

// record is one request as an API saw it: what it is made of, and by which readings of its target it was served as the
// watched operation. The APIs of testdata write the same members.
type record struct {
	Agent     []string `json:"agent"`
	Method    string   `json:"method"`
	Target    string   `json:"target"`
	Served    []string `json:"served"`
	Forwarded []string `json:"forwarded"`
	User      []string `json:"user"`
	Cookie    []string `json:"cookie"`
}

// goAPI is an API with the watched operation, as Go's programs look for it. A name with " (any method case)" is that of a
// program that does not ask for the method as it is written. Its answers are those of the APIs of testdata.
type goAPI struct {
	address string
	mu      sync.Mutex
	file    *os.File // each request as a line, where there is one
}

func startGoAPI(t *testing.T, recordTo string) *goAPI {
	t.Helper()
	a := &goAPI{}
	if recordTo != "" {
		file, err := os.Create(recordTo)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		a.file = file
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	a.address = server.Listener.Addr().String()
	return a
}

func (a *goAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	by := servedByGo(r)
	if a.file != nil {
		line, err := json.Marshal(record{
			Agent: r.Header.Values("User-Agent"), Method: r.Method, Target: r.RequestURI, Served: by,
			Forwarded: r.Header.Values("X-Forwarded-For"), User: r.Header.Values("X-User-Id"), Cookie: r.Header.Values("Cookie"),
		})
		if err == nil {
			a.mu.Lock()
			_, err = a.file.Write(append(line, '\n'))
			a.mu.Unlock()
		}
		if err != nil {
			panic(err) // the test would miss a request
		}
	}
	if len(by) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, strings.Join(by, "\n"))
}

func servedByGo(r *http.Request) []string {
	var by []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+operation, func(http.ResponseWriter, *http.Request) { by = append(by, "ServeMux") })
	mux.ServeHTTP(httptest.NewRecorder(), r)
	for name, reading := range map[string]string{
		"URL.Path":          r.URL.Path,
		"URL.Path, cleaned": path.Clean(r.URL.Path),
		"URL.EscapedPath":   r.URL.EscapedPath(),
		"RequestURI":        r.RequestURI,
		"url.Parse":         parsedPath(r.RequestURI),
	} {
		switch {
		case reading != operation:
		case r.Method == http.MethodPost:
			by = append(by, name)
		case strings.EqualFold(r.Method, http.MethodPost):
			by = append(by, name+" (any method case)")
		}
	}
	slices.Sort(by)
	return by
}

func parsedPath(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	return u.Path
}
