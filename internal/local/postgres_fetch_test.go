package local_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/testbed"
)

// asFetcher, in the environment, makes the test binary a process that starts PostgreSQL from programs that it fetches.
const asFetcher = "WEIR_LOCAL_FETCH"

// fetchIn starts and stops a server in dir, with programs from the repository only, and prints how that went.
func fetchIn(dir, repository string) {
	p, err := local.StartPostgres(mainContext(), local.PostgresOptions{
		Dir: filepath.Join(dir, "postgres"),
		Programs: local.Programs{
			Places: []string{"/nowhere"}, FetchInto: filepath.Join(dir, "programs"), Repository: repository,
		},
		Say: func(what string) { fmt.Println("SAYS", what) },
	})
	must(err)
	must(statement(mainContext(), p.URL(), "SELECT 1"))
	must(p.Close())
	fmt.Println("READY")
}

// repository answers as a Maven repository does, with an archive of programs that call those of this machine.
func repository(t *testing.T) (url string, answered *atomic.Int32) {
	t.Helper()
	archive := archived(t)
	digest := sha256.Sum256(archive)
	answered = &atomic.Int32{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answered.Add(1)
		var err error
		switch {
		case strings.HasSuffix(r.URL.Path, ".jar"):
			_, err = w.Write(archive)
		case strings.HasSuffix(r.URL.Path, ".jar.sha256"):
			_, err = w.Write([]byte(hex.EncodeToString(digest[:])))
		default:
			http.NotFound(w, r)
		}
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, answered
}

// archived packs three programs as the repository does: a .txz in a .jar.
func archived(t *testing.T) []byte {
	t.Helper()
	folder := local.InstalledFolder(t)
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"initdb", "pg_ctl", "postgres"} {
		script := "#!/bin/sh\nexec " + filepath.Join(folder, program) + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(root, "bin", program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	packed, err := exec.Command("tar", "-C", root, "-cJf", "-", "bin/initdb", "bin/pg_ctl", "bin/postgres").Output()
	if err != nil {
		t.Skipf("the archive cannot be made here (tar and xz): %v", err)
	}
	var jar bytes.Buffer
	z := zip.NewWriter(&jar)
	file, err := z.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Write(packed)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return jar.Bytes()
}

// fetcher runs fetchIn in a process of a user who is not root.
func fetcher(t *testing.T, dir, repository string) string {
	t.Helper()
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(filepath.Dir(dir), "fetcher") // the test's own binary may be where others cannot go
	if err := os.WriteFile(program, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program)
	command.Dir = dir
	// No PATH at all: PostgreSQL's programs are what is to be missing. Its trial needs a temporary folder.
	command.Env = []string{asFetcher + "=" + repository, "WEIR_LOCAL_DIR=" + dir, "TMPDIR=" + dir, "PATH=/nowhere"}
	if os.Geteuid() == 0 {
		const nobody = 65534
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out)
}

func TestProgramsAreFetchedOnce(t *testing.T) {
	url, answered := repository(t)
	dir := testbed.Folder(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if out := fetcher(t, dir, url); !strings.Contains(out, "SAYS fetching PostgreSQL ") || !strings.HasSuffix(out, "READY\n") {
		t.Fatalf("with a repository:\n%s", out)
	}
	first := answered.Load()
	if out := fetcher(t, dir, url); out != "READY\n" || answered.Load() != first {
		t.Errorf("the second time the repository was asked %s more times, and it said:\n%s", strconv.Itoa(int(answered.Load()-first)), out)
	}
	left, err := os.ReadDir(filepath.Join(dir, "programs"))
	if err != nil || len(left) != 2 { // the programs and the lock
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestFailedFetchNamesTheWaysOut(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	dir := testbed.Folder(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	out := fetcher(t, dir, server.URL)
	_, problem, failed := strings.Cut(out, "FAILED ")
	for _, want := range []string{"this machine has no PostgreSQL", "could not be fetched", "no version found", "apt-get install postgresql", "--postgres-url"} {
		if !failed || !strings.Contains(problem, want) {
			t.Errorf("the error does not name %q:\n%s", want, out)
		}
	}
	if strings.Count(problem, "\n") != 1 {
		t.Errorf("more than a line:\n%s", out)
	}
}
