package devserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/config"
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
