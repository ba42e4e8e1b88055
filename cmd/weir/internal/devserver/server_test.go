package devserver

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestListensOnThisMachineOnly(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "localhost:0", "127.9.9.9:0"} {
		l, err := listenHere("--x", address)
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		_ = l.Close()
	}
}

// Whatever hangs, the process ends in less than the 10 s after which supervisors kill.
func TestEndsWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		d := &server{log: log, narrator: narrator{io.Discard, time.Now()}}
		hung := make(chan struct{})
		hangs := func(context.Context) error { <-hung; return nil }
		d.closing("a server", func() error { return hangs(t.Context()) })
		signalled, signal := context.WithCancel(t.Context())
		signal()
		begun := time.Now()
		err := d.end(service.Serve(signalled, log, stopTimeout, []service.Part{{Name: "demo", Run: hangs}}, []service.Part{{Name: "stages", Run: hangs}}))
		d.close()
		if took := time.Since(begun); err != nil || took != stopTimeout+closeTimeout || took >= 10*time.Second {
			t.Errorf("took %s, %v", took, err)
		}
		close(hung)
	})
}

// A server that is gone holds up those who need it. What weir dev says is that it is gone.
func TestEndTellsWhatFailedAlsoWhereOthersAreStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		d := &server{log: log, narrator: narrator{io.Discard, time.Now()}}
		hung := make(chan struct{})
		err := d.end(service.Serve(t.Context(), log, stopTimeout,
			[]service.Part{{Name: "stages", Run: func(context.Context) error { <-hung; return nil }}},
			[]service.Part{{Name: "PostgreSQL", Run: func(context.Context) error { return errors.New("it has ended") }}}))
		if err == nil || !strings.HasPrefix(err.Error(), "PostgreSQL: it has ended\n") {
			t.Errorf("got %v", err)
		}
		close(hung)
	})
}

func TestShellWord(t *testing.T) {
	for word, want := range map[string]string{
		"bin/weir": "bin/weir", "/x/my dir/weir": "'/x/my dir/weir'", "it's": `'it'\''s'`, "": "''", "$(reboot)": "'$(reboot)'", "ü": "'ü'",
	} {
		if got := shellWord(word); got != want {
			t.Errorf("%q becomes %s, want %s", word, got, want)
		}
		if out, err := exec.Command("sh", "-c", "printf %s "+shellWord(word)).Output(); err != nil || string(out) != word {
			t.Errorf("a shell reads %q of %q, %v", out, word, err)
		}
	}
}

func TestDevTakesOfTheConfigurationWhatItSays(t *testing.T) {
	given, err := config.Load(config.Source{File: file(t, "namespace: mine\nkafka: {brokers: [10.0.0.1:9092]}\ndetect: {idle_margin: 5s}\n"),
		Environ: []string{"WEIR_REDIS_URL=redis://10.0.0.2:6379/0", "WEIR_LOG_LEVEL=debug"}})
	if err != nil {
		t.Fatal(err)
	}
	c, ignored := configure(given, Options{})
	if c.Namespace != "mine" || c.Log.Level != "debug" || c.Kafka.Brokers[0] == "10.0.0.1:9092" || c.Detect != given.Detect || c.Detect == config.Default().Detect {
		t.Errorf("took namespace %s, log level %s, brokers %v, %+v", c.Namespace, c.Log.Level, c.Kafka.Brokers, c.Detect)
	}
	if len(ignored) != 2 || !strings.HasPrefix(ignored[0], "kafka.brokers (") || ignored[1] != "redis.url (WEIR_REDIS_URL)" {
		t.Errorf("ignored %q", ignored)
	}
	for environ, want := range map[string]string{
		"WEIR_POSTGRES_URL=postgres://weir@10.0.0.3:5432/weir": Namespace, // where the default may be an installation's
		"WEIR_LOG_LEVEL=debug":                                 config.Default().Namespace,
	} {
		given, err := config.Load(config.Source{File: file(t, ""), Environ: []string{environ}})
		if err != nil {
			t.Fatal(err)
		}
		if c, _ := configure(given, Options{}); c.Namespace != want {
			t.Errorf("%s: namespace %s, want %s", environ, c.Namespace, want)
		}
	}
}
