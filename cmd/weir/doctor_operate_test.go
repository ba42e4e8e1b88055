package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/cmd/weir/internal/doctor"
	"github.com/weirhq/weir/internal/testbed"
)

// administer runs statements in the database of a bed, as the role of its URL.
func (b *bed) administer(statements ...string) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.flag("--postgres-url"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	for _, s := range statements {
		if _, err := conn.Exec(b.t.Context(), s); err != nil {
			b.t.Fatalf("%s: %v", s, err)
		}
	}
}

// ownRole is a role of this test alone, and what its processes are to be told of PostgreSQL.
func (b *bed) ownRole() (role, at string) {
	b.t.Helper()
	made := b.flag("--postgres-url")
	role = "weir_test_" + strings.ToLower(rand.Text())
	b.administer("CREATE ROLE " + role + " LOGIN PASSWORD 'secret'")
	b.t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), made)
		if err != nil {
			b.t.Error(err)
			return
		}
		defer func() { _ = conn.Close(context.Background()) }()
		for _, s := range []string{"REASSIGN OWNED BY " + role + " TO current_user", "DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := conn.Exec(context.Background(), s); err != nil {
				b.t.Errorf("%s: %v", s, err)
			}
		}
	})
	u, err := url.Parse(made)
	if err != nil {
		b.t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	return role, u.String()
}

// What PostgreSQL is missing is broken piece by piece, and each piece has its line.
func TestDoctorFindsWhatPostgresLacks(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	schema, admin := b.flag("--namespace"), b.flag("--postgres-url")
	found, _ := b.doctor()
	wantFinding(t, found, "postgres role", doctor.Warn, "a superuser", "a role of its own")
	wantFinding(t, found, "postgres reader", doctor.OK, "weir_read may", "")
	wantFinding(t, found, "days", doctor.OK, "history is kept by day", "")

	tomorrow := time.Now().UTC().AddDate(0, 0, 1)
	b.administer(fmt.Sprintf("DROP TABLE %q.block_decisions_by_day_%s", schema, tomorrow.Format("20060102")))
	found, _ = b.doctor()
	wantFinding(t, found, "days", doctor.Warn, "has no table for "+tomorrow.Format(time.DateOnly), "run weir migrate")
	b.ok("migrate")
	found, _ = b.doctor()
	wantFinding(t, found, "days", doctor.OK, "history is kept by day", "")

	b.administer(fmt.Sprintf("REVOKE SELECT ON %q.hits_v FROM weir_read", schema))
	found, _ = b.doctor()
	wantFinding(t, found, "postgres reader", doctor.Warn, "1 grants are missing", "hits_v")
	b.administer(fmt.Sprintf("GRANT SELECT ON %q.hits_v TO weir_read; GRANT SELECT ON %q.secrets TO weir_read", schema, schema))
	found, _ = b.doctor()
	wantFinding(t, found, "postgres reader", doctor.Warn, "secrets", "REVOKE")
	b.administer(fmt.Sprintf("REVOKE SELECT ON %q.secrets FROM weir_read", schema))

	role, at := b.ownRole()
	b.administer(fmt.Sprintf("GRANT USAGE ON SCHEMA %q TO %s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %q TO %s", schema, role, schema, role))
	b.set("--postgres-url", at)
	found, _ = b.doctor()
	wantFinding(t, found, "postgres role", doctor.Warn, "weir works as "+role+", and what is in the schema belongs to", "GRANT the owner")
	b.set("--postgres-url", admin)
	b.administer(fmt.Sprintf("REVOKE DELETE ON %q.hits_by_day FROM %s", schema, role))
	b.set("--postgres-url", at)
	found, _ = b.doctor()
	wantFinding(t, found, "postgres role", doctor.Fail, "withheld: hits_by_day", "GRANT SELECT, INSERT")
}

// A role that owns its schema is all that weir needs.
func TestDoctorIsContentWithAnOwner(t *testing.T) {
	b := emptyBed(t)
	admin := b.flag("--postgres-url")
	role, at := b.ownRole()
	u, err := url.Parse(admin)
	if err != nil {
		t.Fatal(err)
	}
	b.administer(fmt.Sprintf("GRANT CREATE ON DATABASE %q TO %s", strings.TrimPrefix(u.Path, "/"), role),
		"DO $$ BEGIN CREATE ROLE weir_read; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$")
	b.set("--postgres-url", at)
	b.ok("migrate")
	found, failures := b.doctor()
	wantFinding(t, found, "postgres role", doctor.OK, "weir works as "+role, "")
	wantFinding(t, found, "postgres reader", doctor.OK, "nothing else", "")
	wantFinding(t, found, "days", doctor.OK, "history is kept by day", "")
	if failures > 0 {
		t.Errorf("%v", found)
	}
	b.set("--postgres-url", admin)
}

// Windows that are longer than what Kafka keeps, and identities that are not those of the configuration.
func TestDoctorHoldsTheConfigurationAgainstTheStream(t *testing.T) {
	b := fullBed(t)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "tokens.yaml", tokenRule))
	found, _ := b.doctor()
	wantFinding(t, found, "windows", doctor.OK, "(rule tokens)", "")
	wantFinding(t, found, "routing", doctor.OK, "", "")
	transport := &kafka.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &kafka.Client{Addr: kafka.TCP(strings.Split(b.flag("--kafka-brokers"), ",")...), Transport: transport}
	answer, err := client.IncrementalAlterConfigs(t.Context(), &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: b.names().Keyed,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: "retention.ms", Value: "1000", ConfigOperation: kafka.ConfigOperationSet}},
	}}})
	if err != nil || answer.Resources[0].Error != nil {
		t.Fatal(err, answer)
	}
	b.flags = append(b.flags, "--set", "identity.device.header=X-Tv")
	testbed.Eventually(t, 30*time.Second, func() error { // a broker shows settings a little after it has taken them
		if found, _ = b.doctor(); found["windows"].Status != doctor.Warn {
			return fmt.Errorf("%+v", found["windows"])
		}
		return nil
	})
	wantFinding(t, found, "windows", doctor.Warn, "rule tokens counts over", "set kafka.retention.keyed to")
	wantFinding(t, found, "routing", doctor.Warn, "identity.device.header is X-Device-Id, want X-Tv", "run weir migrate")
}
