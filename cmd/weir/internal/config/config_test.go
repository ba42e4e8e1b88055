package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// files reads from a map in place of the disk.
func files(m map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		text, ok := m[name]
		if !ok {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}
}

func TestConfigErrorsNamePlaceGotAndAllowed(t *testing.T) {
	for _, tc := range []struct{ name, yaml, want string }{
		{"unknown field", "namespace: a\nkafka:\n  broker: [a:1]\n",
			"weir.yaml:3:3: kafka.broker: unknown field; allowed: brokers, tls, sasl, instance_id, " +
				"requests_isolation_level, replication, partitions, retention; did you mean brokers?"},
		{"unknown section", "kafak: {}\n", "weir.yaml:1:1: kafak: unknown field; allowed: namespace, kafka, redis,"},
		{"text for a number", "kafka:\n  replication: three\n",
			`weir.yaml:2:16: kafka.replication: got "three"; allowed: a whole number`},
		{"fraction for a number", "kafka:\n  replication: 1.5\n",
			`weir.yaml:2:16: kafka.replication: got "1.5"; allowed: a whole number`},
		{"list for a text", "namespace: [a]\n", "weir.yaml:1:12: namespace: got a list; allowed: a text"},
		{"bool for a text", "namespace: true\n", "weir.yaml:1:12: namespace: got true; allowed: a text (put it in quotes)"},
		{"a field that no event has", "known_good: 'event.plan == \"paid\" || event.stats == 200'\n",
			`weir.yaml:1:38: known_good: got "event.stats", which no event has; allowed: event. and one of `},
		{"two types", "namespace: a\nknown_good: |\n  event.plan == \"paid\" ||\n  event.status == \"200\"\n",
			"weir.yaml:4:16: known_good: got == with a whole number and a text; allowed: two values of one type; a text is written in quotes"},
		{"no condition", "known_good: event.plan\n", "weir.yaml:1:13: known_good: got an expression that gives a text; allowed: a condition in CEL"},
		{"a list for a condition", "known_good: [event.plan]\n", "weir.yaml:1:13: known_good: got a list; allowed: a text"},
		{"true for a condition", "known_good: true\n", "weir.yaml:1:13: known_good: got true; allowed: a text (put it in quotes)"},
		{"text for a list", "never_block: 192.0.2.0/24\n", "weir.yaml:1:14: never_block: got a text; allowed: a list"},
		{"text for a section", "kafka: there\n", "weir.yaml:1:8: kafka: got a text; allowed: a mapping with brokers,"},
		{"text for a bool", "gate:\n  observe: yes please\n", `weir.yaml:2:12: gate.observe: got "yes please"; allowed: true, false`},
		{"list in a list", "kafka:\n  brokers: [[a]]\n", "weir.yaml:2:12: kafka.brokers: element 1: got a list; allowed: a text"},
		{"bad range", "never_block:\n  - 192.0.2.0/24\n  - 192.0.2.0/99\n",
			`weir.yaml:2:3: never_block: got "192.0.2.0/99"; allowed: an address range`},
		{"bad duration", "kafka:\n  retention:\n    keyed: 5 days\n",
			`weir.yaml:3:12: kafka.retention.keyed: got "5 days"; allowed: a duration like 90s, 15m, 24h or 7d`},
		{"short retention", "kafka:\n  retention:\n    keyed: 10m\n", "weir.yaml:3:12: kafka.retention.keyed: got 10m; allowed: 1h or more"},
		{"number out of range", "kafka:\n  partitions:\n    keyed: 0\n", "weir.yaml:3:12: kafka.partitions.keyed: got 0; allowed: 1 to 1024"},
		{"byte out of range", "identity:\n  ip:\n    v6: 300\n", `weir.yaml:3:9: identity.ip.v6: got "300"; allowed: a whole number from 0 to 255`},
		{"prefix out of range", "identity:\n  ip:\n    v4: 33\n", "weir.yaml:3:9: identity.ip.v4: got 33; allowed: 1 to 32"},
		{"bad size", "detect:\n  budget_per_partition: 1GB\n",
			`weir.yaml:2:25: detect.budget_per_partition: got "1GB"; allowed: a number of bytes like 64MiB or 1GiB`},
		{"size without a unit", "detect:\n  budget_per_partition: 64\n", `weir.yaml:2:25: detect.budget_per_partition: got "64"; allowed: a number of`},
		{"size beyond all", "detect:\n  budget_per_partition: 8589934592GiB\n", `weir.yaml:2:25: detect.budget_per_partition: got "8589934592GiB"`},
		{"small size", "detect: {budget_per_partition: 1023KiB}\n", "weir.yaml:1:32: detect.budget_per_partition: got 1023KiB; allowed: 1MiB or more"},
		{"no idle margin", "detect:\n  idle_margin: 0s\n", "weir.yaml:2:16: detect.idle_margin: got 0s; allowed: 1s to 10m"},
		{"long idle margin", "detect:\n  idle_margin: 11m\n", "weir.yaml:2:16: detect.idle_margin: got 11m; allowed: 1s to 10m"},
		{"bad level", "log:\n  level: loud\n", `weir.yaml:2:10: log.level: got "loud"; allowed: debug, info, warn, error`},
		{"bad format", "events:\n  format: csv\n", `weir.yaml:2:11: events.format: got "csv"; allowed: weir, weir-protobuf, json, combined`},
		{"map without json", "events:\n  map: {time: ts}\n", "weir.yaml:2:8: events.map: "},
		{"map of an unknown field", "events:\n  format: json\n  map: {tyme: ts}\n", `weir.yaml:3:8: events.map: got event field "tyme"`},
		{"bad namespace", "namespace: Weir-1\n", `weir.yaml:1:12: namespace: got "Weir-1"; allowed: a letter`},
		{"a key that is none", "gate:\n  modes_key: secret\n", `weir.yaml:2:14: gate.modes_key: ` +
			`got "secret"; allowed: "" (none), and what weir gate trust prints`},
		{"relative file", "gate:\n  observe_file: run/observe\n", `weir.yaml:2:17: gate.observe_file: got "run/observe"; allowed: an absolute path, or none`},
		{"bad address", "http:\n  listen: nowhere\n", `weir.yaml:2:11: http.listen: got "nowhere"; allowed: host:port`},
		{"given twice", "namespace: a\nnamespace: b\n", "weir.yaml"},
		{"not YAML", "namespace: a\nkafka: [\n", "weir.yaml:"},
		{"two clients of Redis", "redis:\n  url: redis://a:1\n  addresses: [b:2]\n", "weir.yaml:3:14: redis.addresses: got redis.url as well"},
		{"half a key pair", "kafka:\n  tls:\n    cert_file: a\n", "weir.yaml:3:16: kafka.tls.cert_file: got one of cert_file and key_file"},
		{"unknown mechanism", "kafka:\n  sasl: {mechanism: gssapi, username: u, password: p}\n",
			`weir.yaml:2:21: kafka.sasl.mechanism: got "gssapi"; allowed: "" (none), plain, scram-sha-256, scram-sha-512`},
		{"instance id", "kafka:\n  instance_id: pod/1\n",
			`weir.yaml:2:16: kafka.instance_id: got "pod/1"; allowed: up to 249 letters, digits, '.', '_' and '-'`},
		{"mechanism without password", "kafka:\n  sasl: {mechanism: plain, username: u}\n", "weir.yaml:2:21: kafka.sasl.mechanism: got plain without"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Load(Source{ReadFile: files(map[string]string{"weir.yaml": tc.yaml})})
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got  %v\nwant %s…", err, tc.want)
			}
		})
	}
}

func TestConfigConditions(t *testing.T) {
	c, err := Load(Source{Environ: []string{`WEIR_KNOWN_GOOD= event.plan == "paid" `}, ReadFile: files(map[string]string{"weir.yaml": "known_good:\n"})})
	if err != nil || c.KnownGood != `event.plan == "paid"` {
		t.Errorf("%q, %v", c.KnownGood, err)
	}
	_, err = Load(Source{Environ: []string{`WEIR_KNOWN_GOOD=event.plan = 1`}, ReadFile: files(nil)})
	if err == nil || !strings.HasPrefix(err.Error(), "environment: WEIR_KNOWN_GOOD: line 1, column ") {
		t.Errorf("got %v", err)
	}
}

func TestConfigReportsAllErrorsOfAFile(t *testing.T) {
	_, err := Load(Source{ReadFile: files(map[string]string{"weir.yaml": "a: 1\nb: 2\nkafka: {replication: x}\n"})})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v, want three lines", err)
	}
}

func TestConfigPrecedence(t *testing.T) {
	yaml := "namespace: file\nkafka:\n  brokers: [file:1, file:2]\n  replication: 3\nlog: {level: warn}\n"
	c, err := Load(Source{
		ReadFile: files(map[string]string{"weir.yaml": yaml}),
		Environ:  []string{"PATH=/bin", "WEIR_NAMESPACE=env", "WEIR_KAFKA_BROKERS=env:1, env:2", "WEIR_TEST_KAFKA=ignored:1"},
		Settings: []Setting{{Path: "namespace", Value: "flag", Flag: "--namespace"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespace != "flag" {
		t.Errorf("namespace %q: a flag goes before the environment", c.Namespace)
	}
	if want := []string{"env:1", "env:2"}; !slices.Equal(c.Kafka.Brokers, want) {
		t.Errorf("brokers %q: the environment goes before the file", c.Kafka.Brokers)
	}
	if c.Kafka.Replication != 3 || c.Log.Level != "warn" {
		t.Errorf("replication %d, level %s: the file goes before the defaults", c.Kafka.Replication, c.Log.Level)
	}
	if c.Kafka.Partitions.Keyed != 64 || c.HTTP.Listen != "127.0.0.1:9464" {
		t.Errorf("keyed %d, listen %s: the defaults hold where nothing is set", c.Kafka.Partitions.Keyed, c.HTTP.Listen)
	}
	for path, want := range map[string]string{
		"namespace": "--namespace", "kafka.brokers": "WEIR_KAFKA_BROKERS", "kafka.replication": "weir.yaml:4:16", "log.format": "default",
	} {
		if got := c.Origins[path].String(); got != want {
			t.Errorf("%s was set by %q, want %q", path, got, want)
		}
	}
}

func TestConfigLeavesServiceLinksAlone(t *testing.T) {
	environ := []string{
		"WEIR_SERVICE_HOST=10.0.0.1", "WEIR_SERVICE_PORT=9464", "WEIR_SERVICE_PORT_METRICS=9464", "WEIR_PORT=tcp://10.0.0.1:9464",
		"WEIR_GATE_PORT_9465_TCP_ADDR=10.0.0.2", "WEIR_GATE_SERVICE_HOST=10.0.0.2",
	}
	if _, err := Load(Source{Environ: environ}); err != nil {
		t.Error(err)
	}
	if _, err := Load(Source{Environ: []string{"WEIR_GATE_LISTENS=127.0.0.1:1"}}); err == nil {
		t.Error("a setting that would not hold is taken")
	}
}

func TestConfigTypes(t *testing.T) {
	c, err := Load(Source{Environ: []string{
		"WEIR_NEVER_BLOCK=192.0.2.0/24,2001:db8::/32", "WEIR_KAFKA_RETENTION_HITS=1d12h", "WEIR_GATE_OBSERVE=true",
		"WEIR_EVENTS_FORMAT=json", "WEIR_EVENTS_MAP=time=ts,user_agent=ua", "WEIR_IDENTITY_IP_TRUSTED_PROXIES=2",
		"WEIR_DETECT_BUDGET_PER_PARTITION=1536MiB",
	}, ReadFile: files(nil)})
	if err != nil {
		t.Fatal(err)
	}
	if want := netip.MustParsePrefix("2001:db8::/32"); len(c.NeverBlock) != 2 || c.NeverBlock[1] != want {
		t.Errorf("never_block %v", c.NeverBlock)
	}
	if time.Duration(c.Kafka.Retention.Hits) != 36*time.Hour || !c.Gate.Observe || c.Events.Map["user_agent"] != "ua" {
		t.Errorf("retention %v, observe %v, map %v", c.Kafka.Retention.Hits, c.Gate.Observe, c.Events.Map)
	}
	if b := c.Detect.BudgetPerPartition; b != 3<<29 || b.String() != "1536MiB" || Size(0).String() != "0B" || Size(1<<30).String() != "1GiB" {
		t.Errorf("budget %d, %v", b, b)
	}
	if c.Identity.IP.TrustedProxies.Hops != 2 || c.Identity.IP.V6 != 64 {
		t.Errorf("identity %+v", c.Identity.IP)
	}
}

func TestConfigSources(t *testing.T) {
	for _, tc := range []struct {
		name string
		src  Source
		want string // of the error; empty: none
	}{
		{"no file at all", Source{}, ""},
		{"an empty file", Source{ReadFile: files(map[string]string{"weir.yaml": ""})}, ""},
		{"only a comment", Source{ReadFile: files(map[string]string{"weir.yaml": "# nothing\n"})}, ""},
		{"a section without fields", Source{ReadFile: files(map[string]string{"weir.yaml": "kafka:\n"})}, ""},
		{"--config that is missing", Source{File: "no.yaml"}, "configuration file: open no.yaml: file does not exist"},
		{"WEIR_CONFIG that is missing", Source{Environ: []string{"WEIR_CONFIG=no.yaml"}}, "configuration file: open no.yaml"},
		{"unknown variable", Source{Environ: []string{"WEIR_KAFKA_BROKER=a:1"}}, "environment: WEIR_KAFKA_BROKER: no such setting; did you mean WEIR_KAFKA_BROKERS?"},
		{"a variable unlike all of its section", Source{Environ: []string{"WEIR_LOG_ROTATION=1"}}, "environment: WEIR_LOG_ROTATION: no such setting; allowed here: WEIR_LOG_FORMAT, WEIR_LOG_LEVEL"},
		{"a variable unlike all", Source{Environ: []string{"WEIR_FOO=1"}}, "environment: WEIR_FOO: no such setting; weir config show lists all"},
		{"a field of --set unlike all", Source{Settings: []Setting{{"rubbish", "1", "--set"}}}, `--set: no such field "rubbish"; weir config show lists all`},
		{"bad variable", Source{Environ: []string{"WEIR_KAFKA_REPLICATION=x"}}, `environment: WEIR_KAFKA_REPLICATION: got "x"; allowed: a whole number`},
		{"unknown field in --set", Source{Settings: []Setting{{"kafka.brokerz", "a", "--set"}}}, `--set: no such field "kafka.brokerz"; did you mean kafka.brokers?`},
		{"variable that fails the checks", Source{Environ: []string{"WEIR_LOG_LEVEL=loud"}}, `WEIR_LOG_LEVEL: log.level: got "loud"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.src.ReadFile == nil {
				tc.src.ReadFile = files(nil)
			}
			_, err := Load(tc.src)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("got %v", err)
			case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
				t.Errorf("got  %v\nwant %s…", err, tc.want)
			}
		})
	}
}

func TestConfigSecretsFromFiles(t *testing.T) {
	disk := map[string]string{"/run/pg": "postgres://u:hunter2@db:5432/weir\n", "/run/redis": "hunter2\r\n"}
	c, err := Load(Source{ReadFile: files(disk), Environ: []string{
		"WEIR_POSTGRES_URL_FILE=/run/pg", "WEIR_REDIS_PASSWORD_FILE=/run/redis",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if c.Postgres.URL.Reveal() != "postgres://u:hunter2@db:5432/weir" || c.Redis.Password.Reveal() != "hunter2" {
		t.Errorf("read %q and %q", c.Postgres.URL.Reveal(), c.Redis.Password.Reveal())
	}
	_, err = Load(Source{ReadFile: files(disk), Environ: []string{
		"WEIR_POSTGRES_URL_FILE=/run/pg", "WEIR_POSTGRES_URL=postgres://other/weir",
	}})
	if err == nil || !strings.Contains(err.Error(), "postgres.url and postgres.url_file are both set") {
		t.Errorf("got %v, want an error for two sources of one secret", err)
	}
	_, err = Load(Source{ReadFile: files(disk), Environ: []string{"WEIR_REDIS_PASSWORD_FILE=/run/none"}})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "redis.password_file") {
		t.Errorf("got %v, want an error that names the field", err)
	}
}

func TestConfigNeverShowsSecrets(t *testing.T) {
	yaml := `
kafka: {sasl: {mechanism: plain, username: u, password: hunter2}}
redis: {url: "redis://:hunter2@127.0.0.1:6379/0", password: hunter2}
postgres: {url: "postgres://u:hunter2@127.0.0.1:5432/weir?password=hunter2"}
`
	c, err := Load(Source{ReadFile: files(map[string]string{"weir.yaml": yaml})})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%v %+v %#v %s %s %s", c, *c, *c, text, c.Postgres.URL.Server(), c.Redis.URL.Server())
	for _, f := range c.Fields() {
		shown += " " + f.Text()
	}
	if strings.Contains(shown, "hunter2") {
		t.Errorf("a secret is shown: %s", shown)
	}
	if c.Postgres.URL.Server() != "postgres://127.0.0.1:5432/weir" {
		t.Errorf("errors name %q, want the address", c.Postgres.URL.Server())
	}
	_, err = Load(Source{ReadFile: files(nil), Environ: []string{"WEIR_POSTGRES_URL=hunter2://u:hunter2@h"}})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v, want an error without the secret", err)
	}
}

// The example sets every field there is, to its default, so that it cannot go stale.
func TestExampleConfigIsCompleteAndDefault(t *testing.T) {
	const name = "../../../../weir.example.yaml"
	c, err := Load(Source{File: name})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, f := range Default().Fields() {
		want[f.Path] = f.Text()
	}
	for _, f := range c.Fields() {
		if !c.Origins.Has(f.Path) {
			t.Errorf("%s does not set %s", name, f.Path)
		}
		if f.Text() != want[f.Path] {
			t.Errorf("%s: %s is %q, the default is %q", name, f.Path, f.Text(), want[f.Path])
		}
	}
}

// The table of docs/configuration.md has one line for each field: field, variable, default.
func TestConfigurationPageNamesEveryField(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for _, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`") {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		documented[cells[1]] = cells
	}
	for _, f := range Default().Fields() {
		cells, ok := documented[f.Path]
		if !ok {
			t.Errorf("docs/configuration.md does not name %s", f.Path)
			continue
		}
		want := f.Text()
		if s, secret := f.Value.Interface().(Secret); secret {
			want = s.Reveal()
		}
		if cells[2] != f.Env() || cells[3] != want {
			t.Errorf("%s: the page says %s and %q, it is %s and %q", f.Path, cells[2], cells[3], f.Env(), want)
		}
		delete(documented, f.Path)
	}
	for path := range documented {
		t.Errorf("docs/configuration.md names %s, which does not exist", path)
	}
}

// TestTrustedProxiesFromEveryPlace: a list or a number, in a file, a variable or a flag, and config show gives both back.
func TestTrustedProxiesFromEveryPlace(t *testing.T) {
	file := func(value string) Source {
		return Source{ReadFile: files(map[string]string{"weir.yaml": "identity:\n  ip:\n    trusted_proxies: " + value + "\n"})}
	}
	flag := func(value string) Source {
		return Source{ReadFile: files(nil), Settings: []Setting{{"identity.ip.trusted_proxies", value, "--set"}}}
	}
	variable := func(value string) Source {
		return Source{ReadFile: files(nil), Environ: []string{"WEIR_IDENTITY_IP_TRUSTED_PROXIES=" + value}}
	}
	for _, c := range []struct {
		src  Source
		want string
	}{
		{file("2"), "2"}, {file("[]"), "0"}, {file(""), "0"}, {file("10.0.0.0/8"), "10.0.0.0/8"},
		{file("[10.0.0.0/8, 192.0.2.7]"), "10.0.0.0/8,192.0.2.7/32"}, {file("\n    - 10.0.0.0/8\n    - \"2001:db8::/32\""), "10.0.0.0/8,2001:db8::/32"},
		{flag("3"), "3"}, {flag("10.0.0.0/8,192.0.2.7"), "10.0.0.0/8,192.0.2.7/32"}, {variable("1"), "1"}, {variable("192.0.2.7, 10.1.2.3/8"), "192.0.2.7/32,10.0.0.0/8"},
	} {
		conf, err := Load(c.src)
		if err != nil {
			t.Errorf("%s: %v", c.want, err)
			continue
		}
		shown := ""
		for _, f := range conf.Fields() {
			if f.Path == "identity.ip.trusted_proxies" {
				shown = f.Text()
			}
		}
		if shown != c.want {
			t.Errorf("got %s, want %s", shown, c.want)
		}
	}
	for value, want := range map[string]string{
		"33": "weir.yaml:3:22: identity.ip.trusted_proxies: got 33; allowed: a list of prefixes", "[10.0.0.0/8, 2]": `got "2"; allowed`,
		"[0.0.0.0/0]": "everybody", "{a: b}": "got a mapping", "[[10.0.0.0/8]]": "element 1: got a list", "edge": `got "edge"; allowed`,
	} {
		if _, err := Load(file(value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", value, err, want)
		}
	}
	if _, err := Load(variable("-1")); err == nil || !strings.Contains(err.Error(), "WEIR_IDENTITY_IP_TRUSTED_PROXIES: got -1") {
		t.Errorf("a variable: %v", err)
	}
}
