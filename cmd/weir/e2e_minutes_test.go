package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/testbed"
)

const minuteRules = `id: tokens
owner: platform
match: {path: /v1/guest-tokens}
key: [ip]
limit: 1000
window: 1m
block: {ttl: 1m}
`

// Routers are stopped and started between events, at the same time as others and after one another. History has each event once, by the
// minute of its own time, with what known_good says of it.
func TestHistoryHasAllEventsByMinute(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.flags = append(b.flags, "--set", `known_good=event.plan == "paid"`)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", minuteRules))
	begin := time.Now().UTC().Add(-2 * time.Minute).Truncate(time.Minute)
	sent := 0
	send := func() {
		var events strings.Builder
		for range 60 {
			at := begin.Add(time.Duration(sent%20) * 3 * time.Second)
			path, plan := []string{"/v1/guest-tokens", "/other"}[sent%2], []string{"paid", "free", ""}[sent%3]
			fmt.Fprintf(&events, `{"v":1,"time":%q,"ip":"198.51.100.%d","path":%q,"plan":%q}`+"\n", at.Format(time.RFC3339Nano), sent%50, path, plan)
			sent++
		}
		b.sendAll(events.String())
	}
	figures := func() (out string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), b.flag("--postgres-url"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close(context.Background()) }()
		err = conn.QueryRow(t.Context(), strings.ReplaceAll(`SELECT concat_ws(' ', (SELECT concat_ws(' ', min(minute) = $1, count(*), sum(events), sum(refused), sum(unwatched), sum(good), sum(unjudged))
			FROM {ns}.event_minutes_v WHERE stream = 'live'), (SELECT concat_ws(' ', rule, sum(matched)) FROM {ns}.rule_event_minutes_v WHERE stream = 'live' GROUP BY rule))`,
			"{ns}", b.flag("--namespace")), begin).Scan(&out)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for range 3 {
		one, other := b.start("run", "--stages", "route"), b.start("run", "--stages", "route")
		send()
		testbed.Eventually(t, 60*time.Second, func() error { // routed: who stops then tells the rest
			if got, want := figures(), fmt.Sprintf("t 1 %d ", sent); !strings.HasPrefix(got, want) {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		})
		send()
		one.end()
		other.end()
	}
	last := b.start("run", "--stages", "route")
	testbed.Eventually(t, 60*time.Second, func() error {
		if got, want := figures(), fmt.Sprintf("t 1 %d 0 %d %d %d tokens %d", sent, sent/2, sent/3, sent/3, sent/2); got != want {
			return fmt.Errorf("%s, want %s", got, want)
		}
		return nil
	})
	last.end()
}
