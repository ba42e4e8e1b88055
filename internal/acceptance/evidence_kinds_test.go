package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/evidenceoracle"
)

// kind is a kind of rule, as weir reads it and as the oracle does.
type kind struct {
	name             string
	match, rest      string // of the document: the match beside the host, and what the oracle's rule does not say
	rule             evidenceoracle.Rule
	watched, reached func(q *raw) bool
	limits           []int // at which copies of it are promoted
	narrow           bool  // its block is on a part of those whom its key counts together
}

const shadowHost = "shadow.example.com"

// Blocks stand for longer than a test takes, since Redis and the gate go by the clock of the machine. That of brief, which is promoted
// nowhere, ends within the log.
const standing = 4 * time.Hour

func kinds() []kind {
	login := func(q *raw) bool { return q.path == "/login" }
	failed := func(q *raw) bool { return q.path == "/login" && q.status == 401 }
	every := func(*raw) bool { return true }
	rule := func(limit int, window, ttl time.Duration, key, block []string) evidenceoracle.Rule {
		return evidenceoracle.Rule{
			Limit: limit, Window: window.Microseconds(), TTL: ttl.Microseconds(), Lateness: (30 * time.Second).Microseconds(), Cooldown: (10 * time.Second).Microseconds(),
			OnHit: true, Key: key, Block: block,
		}
	}
	ip, device, both := []string{"ip"}, []string{"device"}, []string{"ip", "device"}
	distinct, bytes := rule(2, 2*time.Minute, standing, ip, ip), rule(4000, 90*time.Second, standing, device, device)
	distinct.Distinct, bytes.Bytes = "user", true
	return []kind{
		{"logins", "path: /login, status: 401", "", rule(3, time.Minute, standing, ip, ip), failed, login, []int{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, false},
		{"pairs", "path: [/login, /tokens]", "", rule(2, 2*time.Minute, standing, both, ip), every, every, []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, false},
		{"users", "path: /login", "count: {distinct: user}\n", distinct, login, login, []int{2}, false},
		{"volume", "method: POST", "count: {sum: bytes}\n", bytes, every, every, []int{4000}, false},
		{"narrow", "path: /*", "", rule(4, time.Minute, standing, ip, both), every, every, []int{4}, true},
		{"brief", "path: /login", "", rule(3, time.Minute, 15*time.Second, ip, ip), login, login, nil, false},
		{"elsewhere", "path: /login", "block.match", rule(3, time.Minute, standing, ip, ip), login, func(q *raw) bool { return q.path == "/tokens" }, []int{3}, false},
	}
}

// document is the rule for requests to one host.
func (k *kind) document(id, host string, limit int, lateness string) string {
	block, rest := "", k.rest
	if rest == "block.match" {
		block, rest = fmt.Sprintf(", match: {host: %s, path: /tokens}", host), ""
	}
	return fmt.Sprintf("id: %s\nowner: tests\nmatch: {host: %s, %s}\nkey: [%s]\non_missing: skip\nlimit: %d\nwindow: %ds\nlateness: %s\nmax_lag: 6h\ncooldown: 10s\n%sblock: {key: [%s], ttl: %ds, extend: on-hit%s}\n",
		id, host, k.match, strings.Join(k.rule.Key, ", "), limit, k.rule.Window/1e6, lateness, rest, strings.Join(k.rule.Block, ", "), k.rule.TTL/1e6, block)
}

func (k *kind) copied(limit int) string { return fmt.Sprintf("%s-%d", k.name, limit) }
func (k *kind) host(limit int) string   { return k.copied(limit) + ".example.com" }

// copies are the documents that are promoted. Their log is older than all that has come when it is sent, and none of it is late.
func (k *kind) copies() (out []string) {
	for _, limit := range k.limits {
		out = append(out, k.document(k.copied(limit), k.host(limit), limit, "6h"))
	}
	return out
}

func documents(of []kind, each func(*kind) []string) string {
	var all []string
	for i := range of {
		all = append(all, each(&of[i])...)
	}
	return strings.Join(all, "---\n")
}

func copiesOfAll() (out []string) {
	for _, k := range kinds() {
		out = append(out, k.copies()...)
	}
	return out
}

// raw is a request.
type raw struct {
	at                           time.Time
	ip, device, user, path, plan string
	status, bytes                int
	ours                         bool
}

// event is the request as a gateway writes it, with the verdict where a gate refused it.
func (q *raw) event(host string, refused http.Header) ([]byte, error) {
	event := map[string]any{
		"v": 1, "time": q.at.UTC().Format(time.RFC3339Nano), "ip": q.ip, "user": q.user, "method": http.MethodPost, "host": host, "path": q.path,
		"status": q.status, "bytes": q.bytes,
	}
	for name, value := range map[string]string{"device": q.device, "plan": q.plan} {
		if value != "" {
			event[name] = value
		}
	}
	switch {
	case q.ours:
		event["verdict"] = map[string]string{"rule": "other", "block": "0123"}
	case refused != nil:
		event["verdict"] = map[string]string{"rule": refused.Get("X-Weir-Rule"), "block": refused.Get("X-Weir-Block")}
	}
	return json.Marshal(event)
}

// evidenceLog are some addresses, each with bursts of its own size, over a quarter of an hour in which two minutes are silent.
func evidenceLog(begin time.Time) (out []raw) {
	rnd := rand.New(rand.NewPCG(14, 3))
	for burst := range 24 {
		minute := burst / 2
		if minute >= 6 {
			minute += 2
		}
		who := burst % 7
		at := begin.Add(time.Duration(minute)*time.Minute + time.Duration(rnd.IntN(30))*time.Second)
		for range 2 + 2*who + rnd.IntN(3) {
			at = at.Add(time.Duration(200+rnd.IntN(2500)) * time.Millisecond)
			q := raw{
				at: at, ip: fmt.Sprintf("203.0.113.%d", 1+who), user: fmt.Sprintf("user-%d", rnd.IntN(2+who)), bytes: 100 * rnd.IntN(12), ours: rnd.IntN(25) == 0,
				device: []string{"", fmt.Sprint("tv-", who), fmt.Sprint("tv-", who), fmt.Sprint("phone-", who)}[rnd.IntN(4)],
				path:   []string{"/login", "/login", "/login", "/tokens"}[rnd.IntN(4)], status: []int{200, 401, 401, 401}[rnd.IntN(4)],
				plan: []string{"", "free", "free"}[rnd.IntN(3)],
			}
			if who >= 5 && rnd.IntN(4) == 0 {
				q.plan = "paid"
			}
			out = append(out, q)
		}
	}
	slices.SortStableFunc(out, func(a, b raw) int { return a.at.Compare(b.at) })
	return out
}

// shifted is the same log at another time.
func shifted(log []raw, by time.Duration) []raw {
	out := slices.Clone(log)
	for i := range out {
		out[i].at = out[i].at.Add(by)
	}
	return out
}

// minutesOf are the whole minutes of a log.
func minutesOf(log []raw) (since, until time.Time) {
	return log[0].at.Truncate(time.Minute).UTC(), log[len(log)-1].at.Truncate(time.Minute).Add(time.Minute).UTC()
}

// requests are the log as the oracle reads it.
func (k *kind) requests(log []raw) (out []evidenceoracle.Request) {
	for i := range log {
		q := &log[i]
		r := evidenceoracle.Request{
			At: q.at.UnixMicro(), Fields: map[string]string{"ip": q.ip, "device": q.device, "user": q.user}, Watched: k.watched(q), Reached: k.reached(q), Ours: q.ours, Bytes: q.bytes,
		}
		if !q.ours {
			r.Good = map[string]int{"": 0, "free": 1, "paid": 2}[q.plan]
		}
		out = append(out, r)
	}
	return out
}

// execute runs a statement.
func (in *install) execute(sql string) {
	in.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, in.postgres)
	if err != nil {
		in.t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, strings.ReplaceAll(sql, "{ns}", in.ns)); err != nil {
		in.t.Fatal(err)
	}
}
