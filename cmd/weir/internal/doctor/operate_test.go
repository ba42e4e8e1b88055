package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Replicas are held against the configuration and the cluster, and how many of them must have a record against how many there are.
func TestDoctorJudgesReplicas(t *testing.T) {
	one := ingest.TopicDifference{Setting: "min.insync.replicas", Got: "1", Want: "2"}
	clock := ingest.TopicDifference{Setting: "message.timestamp.type", Got: "CreateTime", Want: "LogAppendTime"}
	for _, tc := range []struct {
		name              string
		has               int
		wrong             []ingest.TopicDifference
		replicas, brokers int
		st                Status
		text, remedy      string
	}{
		{"one broker", 1, []ingest.TopicDifference{one}, 1, 1, OK, "1 replica, settings as they should be", ""},
		{"as it should be", 3, nil, 3, 3, OK, "3 replicas", ""},
		{"fewer than configured", 2, []ingest.TopicDifference{one}, 3, 3, Warn, "2 replicas; kafka.replication says 3", "kafka-reassign-partitions"},
		{"one of many brokers", 1, []ingest.TopicDifference{one}, 0, 2, Warn, "1 replica on 2 brokers; with the broker that has it goes what it holds; wanted: 2 replicas", "kafka.replication: 3"},
		{"one acknowledges", 3, []ingest.TopicDifference{one}, 0, 3, Warn, "min.insync.replicas is 1, want 2", "set min.insync.replicas=2"},
		{"two replicas of two", 2, []ingest.TopicDifference{one}, 2, 2, OK, "settings as they should be", ""},
		{"another setting goes before", 3, []ingest.TopicDifference{clock, one}, 3, 3, Fail, "message.timestamp.type is CreateTime, want LogAppendTime", "run weir migrate"},
	} {
		f := judgeTopic(&kafka.InspectedTopic{Name: "weir.hits", Exists: true, Partitions: 4, Replicas: tc.has, Wrong: tc.wrong}, tc.replicas, tc.brokers)
		if f.Status != tc.st || !strings.Contains(f.Found, tc.text) || !strings.Contains(f.Remedy, tc.remedy) || strings.Contains(f.Found, ", want 2") && tc.name != "one acknowledges" {
			t.Errorf("%s: %+v", tc.name, f)
		}
	}
}

func TestDoctorJudgesWindows(t *testing.T) {
	all := make([]rules.Version, 3)
	for i, window := range []time.Duration{time.Hour, 7 * config.Day, time.Minute} {
		all[i].ID, all[i].Window, all[i].Lateness = []string{"a", "week", "c"}[i], window, time.Minute
	}
	for _, tc := range []struct {
		all    []rules.Version
		keeps  time.Duration
		st     Status
		text   string
		remedy string
	}{
		{all, config.Day, Warn, "rule week counts over 7d, and weir.keyed keeps 1d, want 7d1m", "set kafka.retention.keyed to 7d1m"},
		{all, 7 * config.Day, Warn, "rule week", "kafka.retention.keyed"}, // what is late is not kept
		{all, 7*config.Day + time.Minute, OK, "the longest, with lateness, is 7d1m (rule week); weir.keyed keeps 7d1m", ""},
		{all, 0, OK, "keeps for ever", ""},
		{all[:1], config.Day, OK, "(rule a); weir.keyed keeps 1d", ""},
	} {
		f := judgeWindows(tc.all, tc.keeps, "weir.keyed")
		if f.Status != tc.st || !strings.Contains(f.Found, tc.text) || !strings.Contains(f.Remedy, tc.remedy) {
			t.Errorf("keeps %s: %+v, want %s %s", tc.keeps, f, tc.st, tc.text)
		}
	}
}

func TestDoctorJudgesTheAgeOfSnapshots(t *testing.T) {
	for _, tc := range []struct {
		age, keeps time.Duration
		st         Status
	}{
		{7 * time.Hour, config.Day, OK},
		{9 * time.Hour, config.Day, Warn},
		{13 * time.Hour, config.Day, Fail},
		{13 * time.Hour, 0, OK},
		{25 * time.Minute, time.Hour, Warn},
	} {
		f := judgeSnapshotAge("stage detect", progressOf{records: 5, oldest: now().Add(-tc.age)}, tc.keeps, now())
		if f.Status != tc.st || tc.st != OK && (!strings.Contains(f.Found, "Kafka keeps what came since for "+config.Duration(tc.keeps).String()) || !strings.Contains(f.Remedy, "weir run")) {
			t.Errorf("%s of %s: %+v, want %s", tc.age, tc.keeps, f, tc.st)
		}
	}
	if f := judgeSnapshotAge("stage detect", progressOf{}, time.Hour, now()); f.Status != OK {
		t.Errorf("nothing came since: %+v", f)
	}
}

// A stage that commits with snapshots only is not behind for what they take.
func TestDoctorIsPatientWithDetect(t *testing.T) {
	p := progressOf{group: kafka.InspectedGroup{Members: 1}, records: 5, oldest: now().Add(-20 * time.Minute)}
	w := stageWork{stage: ingest.StageDetect, run: ingest.StageDetect}
	for patience, want := range map[time.Duration]Status{time.Minute: Warn, 27 * time.Minute: OK} {
		if f := judgeProgress("stage detect", w, p, patience, now()); f.Status != want {
			t.Errorf("%s: %+v, want %s", patience, f, want)
		}
	}
}

func TestDoctorJudgesRoles(t *testing.T) {
	for _, tc := range []struct {
		roles        postgres.InspectedRoles
		st           Status
		text, remedy string
	}{
		{postgres.InspectedRoles{User: "weir"}, OK, "weir works as weir, which owns the schema", ""},
		{postgres.InspectedRoles{User: "weir", Superuser: true}, Warn, "a superuser; wanted: a role that owns the schema", "CREATE ROLE"},
		{postgres.InspectedRoles{User: "app", Owners: []string{"weir"}}, Warn, "weir works as app, and what is in the schema belongs to weir", "GRANT"},
		{postgres.InspectedRoles{User: "app", Owners: []string{"weir"}, Withheld: []string{"hits_by_day"}}, Fail, "withheld: hits_by_day", "GRANT SELECT"},
	} {
		if f := judgeRole(&tc.roles); f.Status != tc.st || !strings.Contains(f.Found, tc.text) || !strings.Contains(f.Remedy, tc.remedy) {
			t.Errorf("%+v: %+v", tc.roles, f)
		}
	}
	for _, tc := range []struct {
		roles        postgres.InspectedRoles
		st           Status
		text, remedy string
	}{
		{postgres.InspectedRoles{}, Warn, "there is no role weir_read", "CREATE ROLE weir_read"},
		{postgres.InspectedRoles{Reader: true}, OK, "may not log in yet", ""},
		{postgres.InspectedRoles{Reader: true, ReaderIn: true}, OK, "may log in", ""},
		{postgres.InspectedRoles{Reader: true, ReaderLack: []string{"GRANT SELECT ON weir.hits_v TO weir_read"}}, Warn, "1 grants are missing", "GRANT SELECT ON weir.hits_v"},
		{postgres.InspectedRoles{Reader: true, ReaderOver: []string{"secrets"}}, Warn, "and not the views alone: secrets", "REVOKE"},
	} {
		if f := judgeReader(&tc.roles); f.Status != tc.st || !strings.Contains(f.Found, tc.text) || !strings.Contains(f.Remedy, tc.remedy) {
			t.Errorf("%+v: %+v", tc.roles, f)
		}
	}
}

// Every field in which identity maps differ is told, with what the stream has and what the configuration wants.
func TestDoctorTellsWhereIdentitiesDiffer(t *testing.T) {
	has, want := traffic.DefaultIdentityMap(), traffic.DefaultIdentityMap()
	if got := identityDifferences(&has, &want); len(got) > 0 {
		t.Errorf("of two that are the same: %q", got)
	}
	if err := want.IP.TrustedProxies.UnmarshalText([]byte("10.0.0.0/8")); err != nil {
		t.Fatal(err)
	}
	want.IP.V6, want.IP.Claimed, want.IP.Header = 56, true, "Forwarded"
	want.Device.Header, want.User.Cookie, want.APIKey.Vouched, want.Session.Commas = "X-Tv", "uid", true, true
	const all = "identity.api_key.vouched is false, want true; identity.device.header is X-Device-Id, want X-Tv; identity.ip.claimed is false, want true; " +
		"identity.ip.header is none, want Forwarded; identity.ip.trusted_proxies is 0, want 10.0.0.0/8; identity.ip.v6 is 64, want 56; " +
		"identity.session.commas is false, want true; identity.user.cookie is none, want uid"
	if got := strings.Join(identityDifferences(&has, &want), "; "); got != all {
		t.Errorf("got  %s\nwant %s", got, all)
	}
	e := examined(t, rules.ModeShadow)
	e.routing.Identity, e.conf.Identity = has, want
	if f := e.judgeRouting(); f.Status != Warn || !strings.Contains(f.Found, "identity.ip.v6 is 64, want 56") || f.Remedy != "run weir migrate" {
		t.Errorf("%+v", f)
	}
}
