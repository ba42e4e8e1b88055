package boardtest

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

// wantPages: promtool finds nothing wrong with what each process serves, and docs/metrics.md has all of it, with its type.
func wantPages(t *testing.T, addresses map[string]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(weir_\\w+)` \\| (\\w+) ").FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = row[2]
	}
	for role, address := range addresses {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		check := exec.Command(testbed.Program(t, "promtool"), "check", "metrics")
		check.Stdin = strings.NewReader(string(page))
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("promtool check metrics, %s: %v\n%s", role, err, out)
		}
		served := regexp.MustCompile(`(?m)^# TYPE (weir_\w+) (\w+)$`).FindAllStringSubmatch(string(page), -1)
		if len(served) == 0 {
			t.Errorf("%s serves no metric of weir", role)
		}
		for _, m := range served {
			if documented[m[1]] != m[2] {
				t.Errorf("%s serves %s, a %s; docs/metrics.md says %q", role, m[1], m[2], documented[m[1]])
			}
		}
	}
}
