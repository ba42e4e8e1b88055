package grafana_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/dashboards"
	"github.com/weirhq/weir/dashboards/grafana"
	"github.com/weirhq/weir/dashboards/grafana/grafanatest"
)

const folder = "weir"

func TestPushIsIdempotent(t *testing.T) {
	t.Parallel()
	s := grafanatest.New(t)
	s.AddFolders(1003) // more than a page
	boards := allBoards(t)

	push(t, s, boards, true, grafana.Created, grafana.Created)
	if s.Saves() != 0 {
		t.Fatalf("a dry run saved %d boards", s.Saves())
	}
	push(t, s, boards, false, grafana.Created, grafana.Created)
	for _, b := range boards {
		if in, ok := s.Folder(b.UID); !ok || in != folder {
			t.Errorf("%s is in folder %q (%v)", b.UID, in, ok)
		}
	}
	push(t, s, boards, false, grafana.Unchanged, grafana.Unchanged)
	if s.Saves() != len(boards) {
		t.Errorf("a second push of equal boards made %d versions", s.Saves()-len(boards))
	}
}

func TestPushPutsBackWhatWasChanged(t *testing.T) {
	t.Parallel()
	s := grafanatest.New(t)
	boards := allBoards(t)
	push(t, s, boards, false, grafana.Created, grafana.Created)
	s.Edit(boards[0].UID, func(model map[string]any) { model["title"] = "mine" })
	for _, dry := range []bool{true, false} {
		_, results, err := client(t, s.URL, s.Token).Push(t.Context(), boards, folder, dry)
		if err != nil {
			t.Fatal(err)
		}
		if got := outcomes(results); got[0] != grafana.Updated || slices.ContainsFunc(got[1:], func(o grafana.Outcome) bool { return o != grafana.Unchanged }) {
			t.Errorf("dry %v: one board was changed, and these were updated: %v", dry, got)
		}
	}
	push(t, s, boards, false, grafana.Unchanged, grafana.Unchanged)

	// To another folder, they move.
	if _, results, err := client(t, s.URL, s.Token).Push(t.Context(), boards[:1], "", false); err != nil || results[0].Outcome != grafana.Updated {
		t.Fatal(results, err)
	}
	if in, _ := s.Folder(boards[0].UID); in != "" {
		t.Errorf("it is in folder %q, not in General", in)
	}
}

func TestPushTriesAgainWhatPasses(t *testing.T) {
	t.Parallel()
	s := grafanatest.New(t)
	s.Fail(http.StatusServiceUnavailable, http.StatusTooManyRequests)
	push(t, s, allBoards(t), false, grafana.Created, grafana.Created)
	s.Fail(slices.Repeat([]int{http.StatusBadGateway}, 50)...)
	before := s.Calls()
	_, _, err := client(t, s.URL, s.Token).Push(t.Context(), allBoards(t), folder, false)
	if err == nil || s.Calls()-before > 5 || !strings.Contains(err.Error(), "502") || !strings.Contains(err.Error(), "tried 3 times") {
		t.Errorf("%d calls, error %v", s.Calls()-before, err)
	}
}

func TestPushSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := grafanatest.New(t)
	elsewhere := httptest.NewServer(http.RedirectHandler("https://grafana.example/login", http.StatusFound))
	t.Cleanup(elsewhere.Close)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>Sign in</html>") }))
	t.Cleanup(page.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, tc := range []struct {
		name, address, token string
		want                 []string
	}{
		{"no token", s.URL, "", []string{"401", "token"}},
		{"a token of somebody else", s.URL, "glsa_stranger", []string{"401", "Invalid API key"}},
		{"a viewer's token", s.URL, s.Read, []string{"403", "Editor"}},
		{"not under this path", s.URL + "/grafana", s.Token, []string{"404", "path"}},
		{"a login in front", elsewhere.URL, s.Token, []string{"redirects", "grafana.example"}},
		{"something else", page.URL, s.Token, []string{"no JSON", "is it Grafana?"}},
		{"nobody", gone.URL, s.Token, []string{"does not answer", "refused", "tried 3 times"}},
		{"nobody, with a password", strings.Replace(gone.URL, "http://", "http://admin:hunter2@", 1), "", []string{"does not answer"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, results, err := client(t, tc.address, tc.token).Push(t.Context(), allBoards(t), folder, false)
			if err == nil || len(results) > 0 {
				t.Fatal("no error", results)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			for _, secret := range []string{s.Token, s.Read, "glsa_stranger", "hunter2"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q has the secret %q", err, secret)
				}
			}
		})
	}
	t.Cleanup(func() {
		if s.Saves() != 0 {
			t.Errorf("%d boards were saved", s.Saves())
		}
	})
}

func TestPushLeavesToOthersWhatIsTheirs(t *testing.T) {
	t.Parallel()
	s := grafanatest.New(t)
	boards := allBoards(t)
	push(t, s, boards, false, grafana.Created, grafana.Created)
	s.Edit(boards[1].UID, func(model map[string]any) { model["description"] = "edited" })
	s.Provision(boards[1].UID)
	_, results, err := client(t, s.URL, s.Token).Push(t.Context(), boards, folder, false)
	if err == nil || len(results) != 1 || !strings.Contains(err.Error(), "provisioning") {
		t.Errorf("a board from a file: %v, after %d boards", err, len(results))
	}

	namesake := boards[0]
	namesake.UID = "team-board"
	namesake.JSON = []byte(strings.Replace(string(namesake.JSON), boards[0].UID, namesake.UID, 1))
	if _, _, err := client(t, s.URL, s.Token).Push(t.Context(), []dashboards.Dashboard{namesake}, folder, false); err == nil || !strings.Contains(err.Error(), "same name") {
		t.Errorf("another board has the title: %v", err)
	}
}

func TestPushEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	held := make(chan struct{})
	t.Cleanup(func() { close(held) })
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stop()
		select {
		case <-r.Context().Done():
		case <-held:
		}
	}))
	t.Cleanup(hangs.Close)
	_, _, err := client(t, hangs.URL, "t").Push(ctx, allBoards(t), folder, false)
	if err == nil || !strings.Contains(err.Error(), "context canceled") || strings.Contains(err.Error(), "tried") {
		t.Errorf("got %v", err)
	}
}

// before makes a server that lets a Grafana do what it is asked, and tells of it to meddle before anybody is answered.
func before(t *testing.T, s *grafanatest.Server, meddle func(r *http.Request, w http.ResponseWriter) (answered bool)) string {
	t.Helper()
	to, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	behind := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done := httptest.NewRecorder()
		behind.ServeHTTP(done, r)
		if meddle(r, w) {
			return
		}
		w.WriteHeader(done.Code)
		_, _ = w.Write(done.Body.Bytes())
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// Where an answer is lost, the next try finds all done, and the push says who did it.
func TestPushSaysWhatItDidWhenAnAnswerWasLost(t *testing.T) {
	t.Parallel()
	s := grafanatest.New(t)
	lost := map[string]bool{}
	at := before(t, s, func(r *http.Request, w http.ResponseWriter) bool {
		if r.Method != http.MethodPost || lost[r.URL.Path] {
			return false
		}
		lost[r.URL.Path] = true
		w.WriteHeader(http.StatusGatewayTimeout)
		return true
	})
	boards := allBoards(t)[:2]
	made, results, err := client(t, at, s.Token).Push(t.Context(), boards, folder, false)
	if err != nil || made != grafana.Created || !slices.Equal(outcomes(results), []grafana.Outcome{grafana.Created, grafana.Created}) || len(lost) != 2 {
		t.Errorf("%s, %v, %v; lost were %v", made, outcomes(results), err, lost)
	}
}

// Who stops a push stops it between two boards: one that is being put is put, and told of.
func TestPushIsStoppedBetweenBoards(t *testing.T) {
	t.Parallel()
	s := grafanatest.New(t)
	ctx, stop := context.WithCancel(t.Context())
	at := before(t, s, func(r *http.Request, _ http.ResponseWriter) bool {
		if strings.HasSuffix(r.URL.Path, "/db") {
			stop()
		}
		return false
	})
	_, results, err := client(t, at, s.Token).Push(ctx, allBoards(t), folder, false)
	if !errors.Is(err, context.Canceled) || len(results) != 1 || results[0].Outcome != grafana.Created || s.Saves() != 1 {
		t.Errorf("%v, %v; %d were saved", outcomes(results), err, s.Saves())
	}
}

func TestAddressesAndTokens(t *testing.T) {
	t.Parallel()
	for _, bad := range []struct{ address, token string }{
		{"", ""}, {"grafana:3000", ""}, {"ftp://grafana", ""}, {"http://", ""}, {"http://grafana:3000?orgId=1", ""}, {"http://grafana", "two\nlines"},
		{"http://grafana:3000", "glsa_secret"}, {"http://ann:glsa_secret@grafana:3000", ""}, {"http://10.0.0.7",
			"glsa_secret"},
	} {
		if _, err := grafana.New(bad.address, bad.token); err == nil || bad.token != "" && strings.Contains(err.Error(), bad.token) {
			t.Errorf("%q with token %q: %v", bad.address, bad.token, err)
		} else if strings.Contains(err.Error(), "glsa_secret") {
			t.Errorf("%q: the error tells the secret: %v", bad.address, err)
		}
	}
	for _, good := range []struct{ address, token string }{
		{"http://grafana:3000", ""}, {"https://grafana", "glsa_secret"}, {"https://ann:glsa_secret@grafana", ""},
		{"http://localhost:3000", "glsa_secret"}, {"http://127.0.0.1:3000", "glsa_secret"}, {"http://[::1]:3000",
			"glsa_secret"},
	} {
		if _, err := grafana.New(good.address, good.token); err != nil {
			t.Errorf("%q: got %v; allowed: a client", good.address, err)
		}
	}
}

func client(t *testing.T, address, token string) *grafana.Client {
	t.Helper()
	c, err := grafana.New(address, token)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func push(t *testing.T, s *grafanatest.Server, boards []dashboards.Dashboard, dry bool, wantFolder, want grafana.Outcome) {
	t.Helper()
	made, results, err := client(t, s.URL, s.Token).Push(t.Context(), boards, folder, dry)
	if err != nil {
		t.Fatal(err)
	}
	if made != wantFolder || len(results) != len(boards) || slices.ContainsFunc(outcomes(results), func(o grafana.Outcome) bool { return o != want }) {
		t.Fatalf("dry %v: the folder is %s, the boards %v; want %s and %s", dry, made, outcomes(results), wantFolder, want)
	}
}

func outcomes(results []grafana.Result) []grafana.Outcome {
	var all []grafana.Outcome
	for _, r := range results {
		all = append(all, r.Outcome)
	}
	return all
}

func allBoards(t *testing.T) []dashboards.Dashboard {
	t.Helper()
	all, err := dashboards.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
