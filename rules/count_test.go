package rules

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

// TestParseNarrowerBlock: where there are too many tuples a block falls back on the rule's key, so that must not be
// claimed only either.
func TestParseNarrowerBlock(t *testing.T) {
	const src = "id: a\nowner: b\nmatch: {}\nkey: [%KEY]\nlimit: 1\nwindow: 5m\nblock: {ttl: 1m, key: [%BLOCK]}\n"
	for _, c := range []struct {
		key, block string
		vouched    bool
		want       string // in the message; "" for none
	}{
		{"ip", "ip, device", false, ""},
		{"ip, device", "user, ip", false, ""},
		{"user", "ip, user", false, "block.key: got fields that the rule's key has not, and a rule's key of user: claimed by the client only"},
		{"user", "ip", false, "a rule's key of user: claimed"},
		{"user", "ip, user", true, ""},
		{"user", "device, session", true, "got device, session: claimed by the client only"},
		{"user, ip", "ip", false, ""},
	} {
		env := testEnvironment()
		env.Identity.User.Vouched = c.vouched
		_, err := parse("a.yaml", []byte(strings.NewReplacer("%KEY", c.key, "%BLOCK", c.block).Replace(src)), env)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("key [%s], block.key [%s], user vouched %v: got %v, want %q", c.key, c.block, c.vouched, err, c.want)
		}
	}
}

func TestParseCounting(t *testing.T) {
	const src = "id: a\nowner: b\nmatch: {}\nkey: [user]\nlimit: 7\nwindow: 30s\nblock: {ttl: 1m, key: [user, ip]}\n"
	env := testEnvironment()
	env.Identity.IP.V4, env.Identity.User.Vouched = 24, true
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 24, V6: 64}
	for _, c := range []struct {
		more string
		want Document
	}{
		{"", Document{Algorithm: AlgorithmSliding, Cooldown: time.Minute, Lateness: time.Minute}},
		{"algorithm: fixed\n", Document{Algorithm: AlgorithmFixed, Cooldown: time.Minute, Lateness: 30 * time.Second}},
		{"algorithm: fixed\nlateness: 1m\n", Document{Algorithm: AlgorithmFixed, Cooldown: time.Minute, Lateness: time.Minute}},
		{"algorithm: token-bucket\n", Document{Algorithm: AlgorithmTokenBucket, Burst: 7, Cooldown: time.Minute, Lateness: time.Minute}},
		{"count: events\ncooldown: 5s\n", Document{Algorithm: AlgorithmSliding, Cooldown: 5 * time.Second, Lateness: time.Minute}},
		{"count: {distinct: ip}\n", Document{Algorithm: AlgorithmSliding, Count: Count{Distinct: &ip}, Cooldown: time.Minute, Lateness: time.Minute}},
		{"count: {sum: attrs.usage.größe}\n", Document{Algorithm: AlgorithmSliding, Count: Count{Sum: "attrs.usage.größe"}, Cooldown: time.Minute, Lateness: time.Minute}},
	} {
		docs, err := parse("a.yaml", []byte(src+c.more), env)
		if err != nil {
			t.Errorf("%s: %v", c.more, err)
			continue
		}
		w := c.want
		w.ID, w.Owner, w.Limit, w.Window, w.MaxLag, w.Missing = "a", "b", 7, 30*time.Second, time.Minute, MissingSkip
		w.Key = []traffic.KeyField{{Field: traffic.FieldUser}}
		w.Block = &Block{Key: []traffic.KeyField{ip, {Field: traffic.FieldUser}}, TTL: time.Minute, Extend: ExtendOnHit}
		if !reflect.DeepEqual(docs[0], w) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", c.more, docs[0], w)
		}
	}
}
