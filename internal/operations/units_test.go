package operations

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

const installed = "/usr/local/bin/weir" // where the units look for the program

// unit is a file of systemd's: by section and name, what stands there, in order.
type unit map[string]map[string][]string

func readUnit(t *testing.T, path string) unit {
	t.Helper()
	u, section := unit{}, ""
	for line := range strings.Lines(string(readFile(t, path))) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = strings.Trim(line, "[]")
			u[section] = map[string][]string{}
		default:
			name, value, ok := strings.Cut(line, "=")
			if !ok {
				t.Fatalf("%s: %q", path, line)
			}
			u[section][name] = append(u[section][name], value)
		}
	}
	return u
}

// units are the paths of all services, by the name under which systemd would start one of them.
func units(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(repository, "deploy", "systemd", "*.service"))
	if err != nil || len(paths) != 7 {
		t.Fatalf("%v, %v", paths, err)
	}
	found := map[string]string{}
	for _, path := range paths {
		found[strings.Replace(filepath.Base(path), "@.", "@3.", 1)] = path
	}
	return found
}

// systemd takes the units as they are, but for where the program lies, and has few complaints about what they may do.
func TestSystemdTakesTheUnits(t *testing.T) {
	analyze := testbed.Program(t, "systemd-analyze")
	folder := t.TempDir()
	var names []string
	all := units(t)
	all["weir.target"] = filepath.Join(repository, "deploy", "systemd", "weir.target")
	for name, path := range all {
		text := strings.ReplaceAll(string(readFile(t, path)), installed, testbed.Weir())
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(path)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		names = append(names, filepath.Join(folder, name))
	}
	slices.Sort(names)
	if said, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, names...)...).CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, said)
	}
	const most = "15" // tenths
	for _, name := range names {
		if !strings.HasSuffix(name, ".service") {
			continue
		}
		c := exec.Command(analyze, "security", "--offline=yes", "--threshold="+most, name)
		if said, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s may do too much: %v\n%s", filepath.Base(name), err, said)
		}
	}
}

// An instance of a template is a member of its groups by a name that no other one on any machine has, answers at a port of its own, and is
// restarted in time to go on with its partitions.
func TestUnitsHaveNamesAndPortsOfTheirOwn(t *testing.T) {
	ports := map[string]string{"127.0.0.1:9465": "gate.listen", "127.0.0.1:9466": "console.listen"}
	for name, path := range units(t) {
		service := readUnit(t, path)["Service"]
		if name == "weir-migrate.service" {
			if service["Restart"] != nil {
				t.Errorf("%s is restarted", name)
			}
			continue
		}
		env := environment(name, service)
		if other, taken := ports[env["WEIR_HTTP_LISTEN"]]; taken || env["WEIR_HTTP_LISTEN"] == "" {
			t.Errorf("%s and %s answer at %q", name, other, env["WEIR_HTTP_LISTEN"])
		}
		ports[env["WEIR_HTTP_LISTEN"]] = name
		if pause, err := time.ParseDuration(strings.Join(service["RestartSec"], "")); err != nil || pause > time.Second {
			t.Errorf("%s is started again after %v (%v); Kafka waits for 10 s", name, pause, err)
		}
		if !slices.Equal(service["Restart"], []string{"always"}) {
			t.Errorf("%s: Restart=%v", name, service["Restart"])
		}
		want := ""
		if unit, instance, is := strings.Cut(strings.TrimSuffix(name, ".service"), "@"); is {
			want = "this-host-" + unit + "-" + instance
		}
		if got := env["WEIR_KAFKA_INSTANCE_ID"]; got != want {
			t.Errorf("%s is %q in its groups, want %q", name, got, want)
		}
	}
	if got := ports["127.0.0.1:9423"]; got != "weir-detect@3.service" {
		t.Errorf("at 9423: %q; docs/deploy.md says where each answers", got)
	}
}

// What differs between the templates of the stages is the stage; nobody mends one and forgets three.
func TestStagesHaveOneUnit(t *testing.T) {
	port := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	description := regexp.MustCompile(`(?m)^Description=.*$`)
	first := ""
	for _, stage := range []string{"route", "detect", "record", "enforce"} {
		text := string(readFile(t, filepath.Join(repository, "deploy", "systemd", "weir-"+stage+"@.service")))
		text = port.ReplaceAllString(description.ReplaceAllString(text, ""), "")
		text = strings.ReplaceAll(strings.ReplaceAll(text, "weir-"+stage+"@", "weir-STAGE@"), "--stages "+stage, "--stages STAGE")
		if first == "" {
			first = text
		} else if text != first {
			t.Errorf("weir-%s@.service is other than that of route", stage)
		}
	}
}

// environment is what Environment= says, in the words of a machine called this-host.
func environment(name string, service map[string][]string) map[string]string {
	unit, instance, _ := strings.Cut(strings.TrimSuffix(name, ".service"), "@")
	words := strings.NewReplacer("%H", "this-host", "%p", unit, "%i", instance, "%%", "%")
	env := map[string]string{}
	for _, line := range service["Environment"] {
		key, value, _ := strings.Cut(words.Replace(line), "=")
		env[key] = value
	}
	return env
}

// The units' commands are those of the real program, and with the documented files each does what it is for. What EnvironmentFile holds goes
// before Environment, as with systemd.
func TestUnitsWork(t *testing.T) {
	testbed.Night(t, "each unit runs for real")
	place := testbed.NewWorkplace(t)
	redis := testbed.Redis(t)
	config := place.Write("weir.yaml", fmt.Sprintf("namespace: %s\nkafka:\n  brokers: [%q]\n  replication: 1\n  partitions: {requests: 2, keyed: 4, hits: 2}\nredis:\n  url: %q\n",
		testbed.Namespace(t), strings.Join(testbed.Kafka(t), `", "`), redis))
	files := map[string]string{
		"/etc/weir/weir.env":         "WEIR_POSTGRES_URL=" + testbed.Postgres(t),
		"/etc/weir/weir-gate.env":    "WEIR_GATE_LISTEN=127.0.0.1:" + strconv.Itoa(testbed.FreePort(t)),
		"/etc/weir/weir-console.env": "WEIR_CONSOLE_LISTEN=127.0.0.1:" + strconv.Itoa(testbed.FreePort(t)),
	}
	all := units(t)
	command := func(ctx context.Context, name string) (*exec.Cmd, string) {
		service := readUnit(t, all[name])["Service"]
		words := strings.Fields(service["ExecStart"][0])
		if len(service["ExecStart"]) != 1 || words[0] != installed {
			t.Fatalf("%s: ExecStart=%v", name, service["ExecStart"])
		}
		env := environment(name, service)
		if env["WEIR_CONFIG"] != "/etc/weir/weir.yaml" {
			t.Errorf("%s: %v", name, env)
		}
		env["WEIR_CONFIG"] = config
		if env["WEIR_HTTP_LISTEN"] != "" {
			env["WEIR_HTTP_LISTEN"] = "127.0.0.1:" + strconv.Itoa(testbed.FreePort(t))
		}
		c := place.Command(ctx, words[1:]...)
		for key, value := range env {
			c.Env = append(c.Env, key+"="+value)
		}
		unit, instance, _ := strings.Cut(strings.TrimSuffix(name, ".service"), "@")
		for _, file := range service["EnvironmentFile"] {
			file = strings.NewReplacer("%p", unit, "%i", instance).Replace(strings.TrimPrefix(file, "-"))
			c.Env = append(c.Env, strings.Fields(files[file])...)
		}
		return c, env["WEIR_HTTP_LISTEN"]
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	migrate, _ := command(ctx, "weir-migrate.service")
	if said, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("weir-migrate: %v\n%s", err, said)
	}
	for name := range all {
		if name == "weir-migrate.service" {
			continue
		}
		c, address := command(context.Background(), name)
		running := testbed.Run(t, c)
		testbed.Eventually(t, time.Minute, func() error {
			if err := running.Alive(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			answer, err := http.Get("http://" + address + "/readyz")
			if err != nil {
				return err
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", name, answer.Status)
			}
			return nil
		})
		member := "this-host-" + strings.Replace(strings.TrimSuffix(name, ".service"), "@", "-", 1)
		if strings.Contains(name, "@") {
			testbed.Eventually(t, time.Minute, func() error {
				if !strings.Contains(running.Said(), member) {
					return fmt.Errorf("%s is no member by the name of %s", name, member)
				}
				return nil
			})
		}
	}
}

// A gateway's machine is told no password but that of Redis: the gate's unit reads a file of its own, and every other
// one the installation's and its own.
func TestAGateIsToldNoPasswordsOfOthers(t *testing.T) {
	for name, path := range units(t) {
		unit, instance, is := strings.Cut(strings.TrimSuffix(name, ".service"), "@")
		own := "-/etc/weir/" + unit + ".env"
		if is {
			own = "-/etc/weir/" + unit + "-" + instance + ".env"
		}
		want := []string{"/etc/weir/weir.env", own}
		if name == "weir-gate.service" {
			want = []string{own}
		}
		files := readUnit(t, path)["Service"]["EnvironmentFile"]
		for i := range files {
			files[i] = strings.NewReplacer("%p", unit, "%i", instance).Replace(files[i])
		}
		if !slices.Equal(files, want) {
			t.Errorf("%s reads %v, want %v", name, files, want)
		}
	}
	for line := range strings.Lines(string(readFile(t, filepath.Join(repository, "deploy", "systemd",
		"weir-gate.env.example")))) {
		if line[0] != '#' && !strings.HasPrefix(line, "WEIR_REDIS_") {
			t.Errorf("the example for a gate has %s", line)
		}
	}
}

// The examples have fields of the configuration, and none of them is shown to anybody.
func TestExampleOfSecrets(t *testing.T) {
	place := testbed.NewWorkplace(t)
	place.Write("weir.yaml", "kafka:\n  sasl: {mechanism: plain, username: weir}\n  tls: {enabled: true}\n")
	c := place.Command(t.Context(), "config", "show")
	var names []string
	example := func(name string) string {
		return string(readFile(t, filepath.Join(repository, "deploy", "systemd", name)))
	}
	for line := range strings.Lines(example("weir.env.example") + example("weir-gate.env.example")) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			c.Env = append(c.Env, line)
			name, _, _ := strings.Cut(line, "=")
			names = append(names, name)
		}
	}
	said, err := c.CombinedOutput()
	if err != nil || len(names) < 3 || strings.Contains(string(said), ":secret@") || strings.Contains(string(said), " secret ") {
		t.Errorf("%v: %v\n%s", names, err, said)
	}
	for _, name := range names {
		if !regexp.MustCompile(`(?m) ` + name + ` +` + name + `$`).Match(said) {
			t.Errorf("%s is no field of the configuration:\n%s", name, said)
		}
	}
}
