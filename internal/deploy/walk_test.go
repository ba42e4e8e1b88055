package deploy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// expectation is a command of docs/deploy.md and what must come of it. A command that asks for what takes a moment is
// run again until it has come.
type expectation struct {
	command string
	want    func(s *site, output string) error
}

const (
	token = `curl -i -X POST -H "X-Device-Id: %s" http://127.0.0.1:8080/v1/guest-tokens`
	weir  = "docker compose exec weir /bin/weir "
)

// walk is docs/deploy.md, command by command.
func walk() []expectation {
	held, passed := fmt.Sprintf(token, "tv-9"), fmt.Sprintf(token, "tv-8")
	return []expectation{
		{"docker compose up -d --wait", nil},
		{weir + `rules apply -f /etc/weir/rules --reason "first rules"`, routed},
		{`for i in 1 2 3 4 5 6; do curl -s -X POST -H "X-Device-Id: tv-7" http://127.0.0.1:8080/v1/guest-tokens; done`, counts(`"token":`, 6)},
		{weir + "history hits --since 1h", contains("guest-token-flood", "tv-7")},
		{weir + `rules promote guest-token-flood --by anna --reason "watched it in shadow" --override "trying it out" --yes`, contains("mode block")},
		{`for i in 1 2 3 4 5 6; do curl -s -X POST -H "X-Device-Id: tv-9" http://127.0.0.1:8080/v1/guest-tokens; done`, nil},
		{held, refused},
		{passed, contains("HTTP/1.1 201 Created", `"token":`)},
		{weir + "blocks list", contains("guest-token-flood", "tv-9")},
		{"docker compose stop gate", nil},
		{held, contains("HTTP/1.1 201 Created", `"token":`)},
		{"docker compose restart gateway", nil},
		{held, contains("HTTP/1.1 201 Created", `"token":`)},
		{"docker compose start gate", nil},
		{held, refused},
		{weir + "console invite --for anna", invited},
	}
}

// invited opens the link that was printed: the console that it leads to has a button for it.
func invited(s *site, output string) error {
	link := strings.TrimSpace(output)
	if err := contains("/signin?invite=")(s, link); err != nil {
		return err
	}
	page, err := get(s.t.Context(), strings.Fields(link)[0])
	if err != nil {
		return err
	}
	return contains("You were invited to this console", `action="/signin/invite"`)(s, page)
}

func contains(all ...string) func(*site, string) error {
	return func(_ *site, output string) error {
		for _, want := range all {
			if !strings.Contains(output, want) {
				return fmt.Errorf("no %s in %s", want, output)
			}
		}
		return nil
	}
}

// routed waits for the moment after weir rules apply at which ROUTE knows the rule: events from before it are not counted.
func routed(s *site, output string) error {
	if err := contains("guest-token-flood")(s, output); err != nil {
		s.t.Fatal(err) // applied again it would say something else
	}
	testbed.Eventually(s.t, 30*time.Second, func() error {
		page, err := get(s.t.Context(), "http://"+s.address("weir", "9464")+"/metrics")
		if err != nil {
			return err
		}
		return contains("\nweir_route_routing_version{namespace=\"weir\",stream=\"live\"} 2\n")(s, page)
	})
	return nil
}

func counts(what string, want int) func(*site, string) error {
	return func(s *site, output string) error {
		if got := strings.Count(output, what); got != want {
			s.t.Fatalf("%d times %s, want %d, in %s", got, what, want, output)
		}
		return nil
	}
}

// refused looks at a refusal as curl -i shows it.
func refused(s *site, output string) error {
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(output)), nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("got %s", answer.Status)
	}
	var problem struct{ Type, Block string }
	if err := json.NewDecoder(answer.Body).Decode(&problem); err != nil {
		s.t.Fatalf("%v in %s", err, output)
	}
	after, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || after < 600 || after > 900 || problem.Block == "" || problem.Block != answer.Header.Get("X-Weir-Block") ||
		answer.Header.Get("X-Weir-Rule") != "guest-token-flood" || !strings.HasSuffix(problem.Type, "#abnormal-usage-detected") {
		s.t.Fatalf("the refusal is %s", output)
	}
	return nil
}

// The commands of docs/deploy.md do what it says, on the real programs with the files that docker-compose.yml mounts.
func TestTheWalkThroughDeployment(t *testing.T) {
	s := newSite(t)
	steps := walk()
	commands := documented(t)
	if len(commands) != len(steps) {
		t.Fatalf("docs/deploy.md has %d commands, this test %d", len(commands), len(steps))
	}
	for i, step := range steps {
		if commands[i] != step.command {
			t.Fatalf("command %d of docs/deploy.md is\n%s\nand this test's is\n%s", i+1, commands[i], step.command)
		}
		// Above the minute after which a hit that goes on is told anew: should the promotion come to ENFORCE after it.
		testbed.Eventually(t, 90*time.Second, func() error {
			output := s.do(step.command)
			if step.want == nil {
				return nil
			}
			if err := step.want(s, output); err != nil {
				return fmt.Errorf("%s: %w", step.command, err)
			}
			return nil
		})
	}
	s.wantOtherAnswers()
	s.wantVerdicts()
	s.wantMetrics()
	s.wantRules()
	s.wantReader()
	s.wantActors()
}

// documented are the commands of docs/deploy.md.
func documented(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(read(t, "docs/deploy.md")), -1) {
		for line := range strings.Lines(block[1]) {
			command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if !ok {
				t.Fatalf("docs/deploy.md: %q is no command", line)
			}
			all = append(all, command)
		}
	}
	return all
}

// do runs a command of the page.
func (s *site) do(command string) string {
	s.t.Helper()
	rest, ok := strings.CutPrefix(command, "docker compose ")
	switch verb, name, _ := strings.Cut(rest, " "); {
	case !ok:
		return s.run(exec.Command("/bin/sh", "-c", s.local("", command)))
	case rest == "up -d --wait":
		s.up()
	case verb == "stop":
		s.stop(name)
	case verb == "restart":
		s.stop(name)
		s.start(name)
	case verb == "start":
		s.start(name)
	case verb == "exec":
		name, inside, _ := strings.Cut(name, " ")
		program, args, _ := strings.Cut(inside, " ")
		// The shell takes the quotes apart; paths and addresses are the service's.
		return s.run(s.within(name, []string{"/bin/sh", "-c", strings.Replace(program, "/bin/weir", s.weir, 1) + " " + s.local(name, args)}))
	default:
		s.t.Fatalf("this test does not know %s", command)
	}
	return ""
}

// wantOtherAnswers: what the API itself answers reaches the client as it is, a 403 too.
func (s *site) wantOtherAnswers() {
	s.t.Helper()
	for path, want := range map[string]string{
		"/v1/films": "HTTP/1.1 200", "/v1/staff": "HTTP/1.1 403", "/v1/nothing": "HTTP/1.1 404", "/healthz": "HTTP/1.1 200",
	} {
		got := s.do("curl -si -H 'X-Device-Id: tv-9' http://127.0.0.1:8080" + path)
		if !strings.HasPrefix(got, want) || path == "/v1/staff" && !strings.Contains(got, "staff only") {
			s.t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// wantVerdicts: the log tells weir's own refusals from the API's answers.
func (s *site) wantVerdicts() {
	s.t.Helper()
	log, err := os.ReadFile(filepath.Join(s.path("gateway", "/var/log/weir"), "access.log"))
	must(s.t, err)
	refusals := 0
	for line := range strings.Lines(string(log)) {
		var event struct {
			Status  string
			Verdict struct{ Rule, Block string }
		}
		must(s.t, json.Unmarshal([]byte(line), &event))
		if (event.Status == "429") != (event.Verdict.Rule == "guest-token-flood" && event.Verdict.Block != "") {
			s.t.Errorf("status and verdict do not fit: %s", line)
		}
		if event.Status == "429" {
			refusals++
		}
	}
	if refusals == 0 {
		s.t.Error("the log has no refusal")
	}
}

// wantMetrics: Prometheus reaches all that it is told to, and has seen the refusals.
func (s *site) wantMetrics() {
	s.t.Helper()
	testbed.Eventually(s.t, 30*time.Second, func() error {
		up, err := s.query(`up`)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, r := range up {
			if r.value != "1" {
				return fmt.Errorf("%v is down", r.labels)
			}
			seen[r.labels["job"]+" "+r.labels["role"]] = true
		}
		for _, want := range []string{"weir run", "weir gate", "weir shipper", "prometheus "} {
			if !seen[want] {
				return fmt.Errorf("no target %q among %v", want, seen)
			}
		}
		wanted := []string{`weir_gate_decisions_total{decision="refuse",rule="guest-token-flood"} > 0`, `weir_build_info{version="` + builtVersion + `"}`}
		for _, name := range regexp.MustCompile("`(weir_[a-z_]+)`").FindAllStringSubmatch(string(read(s.t, "docs/deploy.md")), -1) {
			if name[1] != "weir_read" { // the role
				wanted = append(wanted, `{__name__=~"`+name[1]+`(_count)?"}`)
			}
		}
		for _, promql := range wanted {
			if found, err := s.query(promql); err != nil || len(found) == 0 {
				return fmt.Errorf("Prometheus has no %s (%v)", promql, err)
			}
		}
		return nil
	})
}

// wantActors: the audit trail tells who it was: by name if it was told one, else by the number of the image's user.
func (s *site) wantActors() {
	s.t.Helper()
	host, err := os.Hostname()
	must(s.t, err)
	nobody := "uid 65532@" + host
	if known, err := user.LookupId("65532"); err == nil {
		nobody = known.Username
	}
	if os.Geteuid() != 0 { // then a container of ours runs as the user of this test
		me, err := user.Current()
		must(s.t, err)
		nobody = me.Username
	}
	got := s.psql("-d", "weir", "-At", "-F", " ", "-c", "SELECT DISTINCT action, actor FROM weir.audit_v WHERE action IN ('apply', 'promote') ORDER BY 1")
	if want := "apply " + nobody + "\npromote anna\n"; got != want {
		s.t.Errorf("the audit trail says\n%swant\n%s", got, want)
	}
}

type sample struct {
	labels map[string]string
	value  string
}

func (s *site) query(promql string) ([]sample, error) {
	answer, err := http.Get("http://" + s.address("prometheus", "9090") + "/api/v1/query?query=" + url.QueryEscape(promql))
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	var page struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal(body, &page); err != nil || answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s %s (%w)", promql, answer.Status, body, err)
	}
	var all []sample
	for _, r := range page.Data.Result {
		all = append(all, sample{r.Metric, fmt.Sprint(r.Value[1])})
	}
	return all, nil
}
