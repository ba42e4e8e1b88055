package secured

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/internal/testbed"
)

// noOtherRights asks the servers what each user may do: on each topic, what processes must not do in Redis, and on each table.
func (in *installation) noOtherRights(t *testing.T, d *document) {
	for _, role := range slices.Sorted(maps.Keys(mechanisms())) {
		in.topicsOf(t, d, "weir-"+role, mechanisms()[role])
	}
	in.commandsOf(t)
	in.tablesOf(t)
}

// topicsOf holds what the brokers let a user do with every topic that there is against what the page gives.
func (in *installation) topicsOf(t *testing.T, d *document, user, mechanism string) {
	t.Helper()
	want := map[string]bool{}
	for _, r := range d.kafka {
		if r.user != user || r.kind != kmsg.ACLResourceTypeTopic {
			continue
		}
		want[fmt.Sprint(r.operation, " ", r.name)] = true
		if r.operation != kmsg.ACLOperationCreate && r.operation != kmsg.ACLOperationDescribeConfigs && r.operation != kmsg.ACLOperationAlterConfigs {
			want[fmt.Sprint(kmsg.ACLOperationDescribe, " ", r.name)] = true // which whoever may read or write a topic may do
		}
		if r.operation == kmsg.ACLOperationAlterConfigs {
			want[fmt.Sprint(kmsg.ACLOperationDescribeConfigs, " ", r.name)] = true
		}
	}
	r := kmsg.NewPtrMetadataRequest()
	r.IncludeTopicAuthorizedOperations = true
	answer, err := r.RequestWith(t.Context(), in.brokers.as(user, mechanism))
	if err != nil {
		t.Fatalf("%s: %v", user, err)
	}
	got := map[string]bool{}
	for _, topic := range answer.Topics {
		for operation := kmsg.ACLOperationRead; operation <= kmsg.ACLOperationIdempotentWrite; operation++ {
			if topic.AuthorizedOperations >= 0 && topic.AuthorizedOperations&(1<<operation) != 0 {
				got[fmt.Sprint(operation, " ", *topic.Topic)] = true
			}
		}
	}
	for _, right := range slices.Sorted(maps.Keys(got)) {
		if !want[right] {
			t.Errorf("%s may %s, which docs/security.md does not say", user, right)
		}
	}
	for _, right := range slices.Sorted(maps.Keys(want)) {
		if !got[right] {
			t.Errorf("%s may not %s, which docs/security.md says", user, right)
		}
	}
}

// commandsOf tries in Redis what nobody but its own may do there, without doing it.
func (in *installation) commandsOf(t *testing.T) {
	t.Helper()
	const writes, reads = true, false
	for user, mayWrite := range map[string]bool{"weir-gate": reads, "weir-migrate": writes,
		"weir-enforce": writes, "weir-console": writes, "weir-operator": writes} {
		for command, allowed := range map[string]bool{
			"MGET weir:v1:block:x": true, "HGETALL weir:v1:rules": true,
			"SET weir:v1:gates:x y": true, "ZADD weir:v1:gates:x 1 y": true, "SET weir:v1:rules y": mayWrite,
			"SET weir:v1:block:x y": mayWrite, "DEL weir:v1:block:x": mayWrite, "XADD weir:v1:delta * a b": mayWrite, "EVALSHA 0 1 weir:v1:block:x": mayWrite,
			"MGET other:v1:block:x": false, "SET other:v1:block:x y": false, "FLUSHALL": false, "FLUSHDB": false, "KEYS *": false, "CONFIG GET *": false,
			"CONFIG SET maxmemory 1": false, "ACL LIST": false, "SHUTDOWN": false, "DEBUG SLEEP 1": false, "SCRIPT FLUSH": false, "MONITOR": false, "REPLICAOF a 1": false,
		} {
			args := []any{"ACL", "DRYRUN", user}
			for word := range strings.SplitSeq(command, " ") {
				args = append(args, word)
			}
			answer, err := in.redis.operator.Do(t.Context(), args...).Text()
			if err != nil {
				t.Fatalf("%s: %s: %v", user, command, err)
			}
			if (answer == "OK") != allowed {
				t.Errorf("%s: %s: %s, want it allowed: %v", user, command, answer, allowed)
			}
		}
	}
}

// tablesOf holds that nobody but who has to may change what others believe, or read who has signed in.
func (in *installation) tablesOf(t *testing.T) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), in.postgres.of("weir_migrate", "weir"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	rows, err := c.Query(t.Context(), `SELECT r.rolname, c.relname, p.privilege FROM pg_class c, pg_roles r, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p(privilege)
		WHERE c.relnamespace = 'weir'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND r.rolname IN ('weir_ingest', 'weir_route', 'weir_detect', 'weir_enforce', 'weir_console', 'weir_operator', 'weir_gate')
		AND has_table_privilege(r.oid, c.oid, p.privilege) ORDER BY 1, 2, 3`)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([3]string, error) {
		var f [3]string
		return f, row.Scan(&f[0], &f[1], &f[2])
	})
	if err != nil {
		t.Fatal(err)
	}
	// What each may change, and who may read what is about clients or about people.
	changes := map[string]string{
		"weir_ingest": "processes", "weir_gate": "",
		"weir_route":   "processes partition_states event_minutes rule_event_minutes",
		"weir_detect":  "processes partition_states partition_owners checkpoints checkpoint_pieces",
		"weir_enforce": "processes rule_modes rule_numbers audit block_orders losses",
		"weir_operator": "audit routing_versions dossiers streams rule_versions rule_texts allow_versions " +
			"rule_modes rule_numbers pending_versions raised_limits gap_acceptances block_orders never_block_entries",
		"weir_console": "processes audit routing_versions dossiers streams rule_versions rule_texts allow_versions " +
			"rule_modes rule_numbers pending_versions raised_limits gap_acceptances block_orders never_block_entries " +
			"sessions sign_ins invites saved_views",
	}
	readers := map[string]string{"sessions": "weir_console", "sign_ins": "weir_console", "invites": "weir_console",
		"saved_views": "weir_console", "session_keys": "weir_console"}
	const staged = "weir_route weir_detect weir_enforce weir_console weir_operator"
	for _, table := range []string{"secrets", "rule_versions", "rule_modes", "pending_versions", "raised_limits",
		"allow_versions"} {
		readers[table] = staged
	}
	readers["mode_keys"] = "weir_enforce weir_console weir_operator"
	for _, table := range []string{"hits", "hits_by_day", "hits_v", "samples_v", "block_decisions", "block_decisions_v", "audit"} {
		readers[table] = "weir_enforce weir_console weir_operator"
	}
	seen := map[string]bool{}
	for _, f := range found {
		role, table, right := f[0], f[1], f[2]
		seen[table] = true
		if right != "SELECT" && !slices.Contains(strings.Fields(changes[role]), table) {
			t.Errorf("%s may %s %s", role, right, table)
		}
		if who, ok := readers[table]; ok && right == "SELECT" && !slices.Contains(strings.Fields(who), role) {
			t.Errorf("%s may read %s", role, table)
		}
		if slices.Contains([]string{"audit", "rule_versions", "rule_texts", "allow_versions"}, table) &&
			(right == "UPDATE" || right == "DELETE" || right == "TRUNCATE") {
			t.Errorf("%s may %s %s, whose rows are never changed", role, right, table)
		}
	}
	for table := range readers {
		if !seen[table] {
			t.Errorf("there is no %s that anybody may read: the test shows nothing", table)
		}
	}
}

// saysWhatIsWrong: what keeps a process from a server is said by the process, with the place and the remedy, and no password.
func (in *installation) saysWhatIsWrong(t *testing.T) {
	other := newAuthority(t)
	for _, tc := range []struct {
		name, role string
		set        []string
		want       []string
	}{
		{"Kafka: a wrong password", "route", []string{"WEIR_KAFKA_SASL_PASSWORD=wrong-password"}, []string{"SASL", "check the SASL user and password"}},
		{"Kafka: a mechanism for which there is no such user", "route", []string{"WEIR_KAFKA_SASL_MECHANISM=plain"}, []string{"SASL", "check the SASL user and password"}},
		{"Kafka: an authority that is not trusted", "route", []string{"WEIR_KAFKA_TLS_CA_FILE=" + other.file}, []string{"certificate signed by unknown authority", "check the CA certificate"}},
		{"Kafka: no TLS", "route", []string{"WEIR_KAFKA_TLS_ENABLED=false"}, []string{"TLS or SASL"}},
		{"Redis: a wrong password", "enforce", []string{fmt.Sprintf("WEIR_REDIS_URL=redis://weir-enforce:wrong-password@%s/0", in.redis.address)}, []string{"redis", "WRONGPASS"}},
		{"Redis: an authority that is not trusted", "enforce", []string{"WEIR_REDIS_TLS_CA_FILE=" + other.file}, []string{"redis", "certificate"}},
		{"PostgreSQL: a wrong password", "route", []string{"WEIR_POSTGRES_URL=" + strings.Replace(in.postgres.of("weir_route", "weir"), secret, "wrong-password", 1)}, []string{"postgres", "password authentication failed"}},
		{"PostgreSQL: an authority that is not trusted", "route", []string{"WEIR_POSTGRES_URL=" + strings.Replace(in.postgres.of("weir_route", "weir"), in.trust.file, other.file, 1)}, []string{"postgres", "certificate"}},
		{"PostgreSQL: no TLS", "route", []string{"WEIR_POSTGRES_URL=" + strings.Replace(in.postgres.of("weir_route", "weir"), "verify-full", "disable", 1)}, []string{"postgres", "no encryption"}},
		{"PostgreSQL: a role without rights", "gate", []string{"WEIR_KAFKA_SASL_USERNAME=weir-operator"}, []string{"permission denied"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			said := in.until(t, tc.role, tc.set, tc.want)
			for _, password := range []string{secret, "wrong-password"} {
				if strings.Contains(said, password) {
					t.Errorf("the password is told:\n%s", said)
				}
			}
		})
	}
	t.Run("Kafka: a right that is missing", func(t *testing.T) {
		right := kafkaRight{"weir-detect", kmsg.ACLResourceTypeGroup, "weir.detect", kmsg.ACLOperationRead}
		in.brokers.forbid(right)
		defer in.brokers.allow([]kafkaRight{right})
		in.until(t, "detect", nil, []string{"weir.detect", "Group Authorization Failed"})
	})
	t.Run("Kafka: a topic that is hidden", func(t *testing.T) {
		right := kafkaRight{"weir-ingest", kmsg.ACLResourceTypeTopic, "weir.blocks", kmsg.ACLOperationDescribe}
		in.brokers.forbid(right)
		defer in.brokers.allow([]kafkaRight{right})
		in.until(t, "ingest", nil, []string{"weir.blocks", "this user may not describe it"})
	})
}

// until starts a stage as a role, which cannot do its work, and waits until it has said everything of want.
func (in *installation) until(t *testing.T, role string, set, want []string) string {
	t.Helper()
	stage := map[string]string{"gate": "route", "ingest": "route"}[role]
	if stage == "" {
		stage = role
	}
	p := testbed.Run(t, in.as(t.Context(), role, set, "run", "--stages", stage))
	testbed.Eventually(t, 45*time.Second, func() error {
		said := p.Said()
		for _, w := range want {
			if !strings.Contains(strings.ToLower(said), strings.ToLower(w)) {
				return fmt.Errorf("the %s process has not said %q; it says:\n%s", stage, w, said)
			}
		}
		return nil
	})
	p.End()
	return p.Said()
}
