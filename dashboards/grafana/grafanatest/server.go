// Package grafanatest serves the part of Grafana's HTTP API that puts dashboards into folders, for tests.
package grafanatest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// Server answers as Grafana's documentation of /api/folders and /api/dashboards says.
type Server struct {
	*httptest.Server
	Token string // of a service account that is an Editor
	Read  string // of one that is a Viewer

	mu       sync.Mutex
	folders  []map[string]any
	boards   map[string]*board
	failures []int // statuses of the next answers
	saves    int
	calls    int
}

type board struct {
	model       map[string]any
	folder      string
	version     int
	provisioned bool
}

// New serves until the test ends.
func New(tb testing.TB) *Server {
	s := &Server{Token: "glsa_editor", Read: "glsa_viewer", boards: map[string]*board{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/folders", s.listFolders)
	mux.HandleFunc("POST /api/folders", s.makeFolder)
	mux.HandleFunc("GET /api/dashboards/uid/{uid}", s.getBoard)
	mux.HandleFunc("POST /api/dashboards/db", s.saveBoard)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusNotFound, "Not found") })
	s.Server = httptest.NewServer(s.guard(mux))
	tb.Cleanup(s.Close)
	return s
}

// Fail makes the next answers be these statuses.
func (s *Server) Fail(statuses ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = statuses
}

// Saves is how many versions of boards were made.
func (s *Server) Saves() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saves
}

// Calls is how often the server was asked.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Edit changes a board as somebody in front of it would, and saves it.
func (s *Server) Edit(uid string, change func(model map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boards[uid]
	change(b.model)
	b.version++
}

// Provision makes a board one that comes from a file.
func (s *Server) Provision(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.boards[uid].provisioned = true
}

// AddFolders makes folders of other people.
func (s *Server) AddFolders(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		s.folders = append(s.folders, map[string]any{"id": i + 1, "uid": fmt.Sprint("other-", i), "title": fmt.Sprint("Other ", i)})
	}
}

// Folder is the title of the folder that a board lies in, and whether there is the board.
func (s *Server) Folder(uid string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boards[uid]
	if b == nil {
		return "", false
	}
	for _, f := range s.folders {
		if f["uid"] == b.folder {
			return f["title"].(string), true
		}
	}
	return "", true
}

// guard asks who it is, and holds the mutex for the handlers.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls++
		if len(s.failures) > 0 {
			status := s.failures[0]
			s.failures = s.failures[1:]
			answer(w, status, http.StatusText(status))
			return
		}
		switch r.Header.Get("Authorization") {
		case "Bearer " + s.Token:
		case "Bearer " + s.Read:
			if r.Method != http.MethodGet {
				answer(w, http.StatusForbidden, "You'll need additional permissions to perform this action.")
				return
			}
		default:
			answer(w, http.StatusUnauthorized, "Invalid API key")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, message string) {
	write(w, status, map[string]any{"message": message})
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (s *Server) listFolders(w http.ResponseWriter, r *http.Request) {
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	page, _ := strconv.Atoi(r.FormValue("page"))
	begin := min(limit*max(page-1, 0), len(s.folders))
	write(w, http.StatusOK, append([]map[string]any{}, s.folders[begin:min(begin+limit, len(s.folders))]...))
}

func (s *Server) makeFolder(w http.ResponseWriter, r *http.Request) {
	var asked struct{ Title string }
	if !read(w, r, &asked) {
		return
	}
	for _, f := range s.folders {
		if f["title"] == asked.Title {
			answer(w, http.StatusConflict, "a folder with the same name already exists")
			return
		}
	}
	made := map[string]any{"id": len(s.folders) + 1, "uid": fmt.Sprintf("f%d", len(s.folders)+1), "title": asked.Title, "version": 1}
	s.folders = append(s.folders, made)
	write(w, http.StatusOK, made)
}

func (s *Server) getBoard(w http.ResponseWriter, r *http.Request) {
	b := s.boards[r.PathValue("uid")]
	if b == nil {
		answer(w, http.StatusNotFound, "Dashboard not found")
		return
	}
	b.model["id"], b.model["version"] = 7, b.version
	write(w, http.StatusOK, map[string]any{
		"dashboard": b.model, "meta": map[string]any{"folderUid": b.folder, "provisioned": b.provisioned, "version": b.version},
	})
}

func (s *Server) saveBoard(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Dashboard map[string]any
		FolderUID string `json:"folderUid"`
		Overwrite bool
	}
	if !read(w, r, &asked) {
		return
	}
	uid, _ := asked.Dashboard["uid"].(string)
	b := s.boards[uid]
	for other, o := range s.boards {
		if other != uid && o.folder == asked.FolderUID && o.model["title"] == asked.Dashboard["title"] {
			write(w, http.StatusPreconditionFailed, map[string]any{"status": "name-exists", "message": "A dashboard with the same name already exists"})
			return
		}
	}
	switch version, _ := asked.Dashboard["version"].(float64); {
	case b == nil:
		b = &board{}
		s.boards[uid] = b
	case b.provisioned:
		answer(w, http.StatusBadRequest, "Cannot save provisioned dashboard")
		return
	case int(version) != b.version && !asked.Overwrite:
		write(w, http.StatusPreconditionFailed, map[string]any{"status": "version-mismatch", "message": "The dashboard has been changed by someone else"})
		return
	}
	b.model, b.folder = asked.Dashboard, asked.FolderUID
	b.version++
	s.saves++
	write(w, http.StatusOK, map[string]any{"id": 7, "uid": uid, "url": "/d/" + uid, "status": "success", "version": b.version})
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		answer(w, http.StatusBadRequest, "bad request data")
	}
	return err == nil
}
