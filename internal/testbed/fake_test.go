package testbed_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/testbed"
)

// judged runs test against a testing.TB that notes a failure or a skip instead of passing it on.
type judged struct {
	testing.TB
	cleanups []func()
	fatal    string
	skipped  bool
}

func (j *judged) Helper()             {}
func (j *judged) Cleanup(undo func()) { j.cleanups = append(j.cleanups, undo) }
func (j *judged) Skipped() bool       { return j.skipped }
func (j *judged) Fatalf(format string, arguments ...any) {
	j.fatal = fmt.Sprintf(format, arguments...)
	runtime.Goexit()
}

func (j *judged) Error(arguments ...any) { j.fatal = fmt.Sprint(arguments...) }
func (j *judged) Failed() bool           { return j.fatal != "" }

func (j *judged) Skipf(string, ...any) {
	j.skipped = true
	runtime.Goexit()
}

func judge(t *testing.T, test func(testing.TB)) *judged {
	t.Helper()
	j := &judged{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		test(j)
	}()
	<-done
	for i := len(j.cleanups) - 1; i >= 0; i-- {
		j.cleanups[i]()
	}
	return j
}

func TestEventuallyGivesUpWithTheLastError(t *testing.T) {
	calls := 0
	got := judge(t, func(t testing.TB) {
		testbed.Eventually(t, 20*time.Millisecond, func() error {
			calls++
			return fmt.Errorf("call %d", calls)
		})
	})
	if want := fmt.Sprintf("call %d", calls); calls < 2 || !strings.Contains(got.fatal, want) {
		t.Errorf("after %d calls: %q, want it to end with %q", calls, got.fatal, want)
	}
}

func TestRequireRealRefusesEmbeddedParts(t *testing.T) {
	t.Setenv("WEIR_TEST_REQUIRE_REAL", "1")
	uses := map[testbed.Kind]func(testing.TB){
		testbed.KafkaKind:        func(t testing.TB) { testbed.Kafka(t) },
		testbed.RedisKind:        func(t testing.TB) { testbed.Redis(t) },
		testbed.RedisClusterKind: func(t testing.TB) { testbed.RedisCluster(t) },
		testbed.PostgresKind:     func(t testing.TB) { testbed.Postgres(t) },
	}
	for kind, use := range uses {
		t.Setenv(kind.Env(), "")
		if got := judge(t, use); !strings.Contains(got.fatal, kind.Env()) {
			t.Errorf("%s: %q, want a failure that names %s", kind, got.fatal, kind.Env())
		}
	}
}

func TestReportTellsEmbeddedRealAndSkippedApart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	t.Setenv("WEIR_TEST_REPORT", path)
	t.Setenv("WEIR_TEST_REQUIRE_REAL", "")
	t.Setenv("WEIR_TEST_REDIS", "redis://127.0.0.1:1/0")
	judge(t, func(t testing.TB) { testbed.Redis(t) })
	judge(t, func(t testing.TB) {
		testbed.Redis(t)
		t.Skipf("not today")
	})
	testbed.EmbeddedRedis(t)
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line := "testbed\t" + t.Name() + "\tredis\t"
	want := line + "real\n" + line + "real\n" + line + "skipped\n" + line + "embedded\n"
	if string(got) != want {
		t.Errorf("report:\n%swant:\n%s", got, want)
	}
}

// The private server and its folder must go with the process that started them, also when that one is killed.
func TestPrivatePostgresEndsWithAKilledProcess(t *testing.T) {
	if os.Getenv("WEIR_TESTBED_CHILD") == "killed" {
		fmt.Println("URL " + testbed.Postgres(t))
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		t.Fatal(self.Kill())
	}
	temporary := t.TempDir()
	// As root the server runs as another user, who must be able to do here what it can do in /tmp.
	if err := errors.Join(os.Chmod(filepath.Dir(temporary), 0o755), os.Chmod(temporary, 0o777)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temporary)
	out := child(t, "killed", "TestPrivatePostgresEndsWithAKilledProcess")
	_, url, found := strings.Cut(out, "URL ")
	if !found {
		t.Fatalf("the child gave no URL:\n%s", out)
	}
	url, _, _ = strings.Cut(url, "\n")
	testbed.Eventually(t, 20*time.Second, func() error {
		left, err := os.ReadDir(temporary)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%s is still there", left[0].Name())
		}
		return nil
	})
	conn, err := pgx.Connect(t.Context(), url)
	if err == nil {
		t.Errorf("the server still answers (close: %v)", conn.Close(t.Context()))
	}
}

// child runs one test of this binary in a process of its own, without the environment's real servers, and returns what
// it printed.
func child(t *testing.T, role, test string) string {
	t.Helper()
	command := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	command.Env = append(os.Environ(), "WEIR_TESTBED_CHILD="+role, "WEIR_TEST_POSTGRES=", "WEIR_TEST_REQUIRE_REAL=",
		"WEIR_TEST_REPORT=")
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out)
}
