package evidenceoracle_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/internal/evidenceoracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// scene is a rule and a log, as the oracle reads them and as weir does.
type scene struct {
	rule  evidenceoracle.Rule
	match string // of the document, with block.match
	log   []evidenceoracle.Request
	paths []string // of each request
	begin time.Time
	idle  bool // routers had read the log to its end whenever they ticked
	ticks bool // routers ticked while no request came

	second *rules.Version // by which the requests are routed from one on; nil: by none
	from   int            // the index of that one
}

// span is the log's, in whole minutes.
func (sc *scene) span() (from, to traffic.Time) {
	return traffic.At(sc.begin.Truncate(time.Minute)), traffic.Time(sc.log[len(sc.log)-1].At).Add(time.Minute)
}

// reach is how far a match and its block go.
type reach struct {
	match, block     string
	watched, reached func(path string, status int) bool
}

func reaches() []reach {
	isA := func(path string, _ int) bool { return path == "/a" }
	return []reach{
		{"{path: /a}", "", isA, isA},
		{"{path: /a, status: 404}", "", func(path string, status int) bool { return path == "/a" && status == 404 }, isA},
		{"{path: [/a, /c]}", "match: {path: /b}", func(path string, _ int) bool { return path != "/b" }, func(path string, _ int) bool { return path == "/b" }},
	}
}

func keys() [][2][]string {
	return [][2][]string{
		{{"ip"}, {"ip"}}, {{"ip"}, {"ip"}},
		{{"ip", "device"}, {"ip"}}, {{"ip", "device"}, {"ip", "device"}},
	}
}

const second = int64(time.Second / time.Microsecond)

// drawScene draws a rule and a log of at most n requests in order of time.
func drawScene(t *rapid.T, n int, begin time.Time) *scene {
	key, reach := rapid.SampledFrom(keys()).Draw(t, "key"), rapid.SampledFrom(reaches()).Draw(t, "reach")
	sc := &scene{begin: begin, match: fmt.Sprintf("match: %s\nblock: {key: [%s], %%s, %s}\n", reach.match, strings.Join(key[1], ", "), reach.block), rule: evidenceoracle.Rule{
		Limit: rapid.IntRange(0, 5).Draw(t, "limit"), Window: second * rapid.Int64Range(5, 90).Draw(t, "window"), TTL: second * rapid.Int64Range(1, 300).Draw(t, "ttl"),
		Lateness: second * rapid.Int64Range(0, 60).Draw(t, "lateness"), Cooldown: second * rapid.SampledFrom([]int64{1, 10, 60}).Draw(t, "cooldown"),
		OnHit: rapid.Bool().Draw(t, "on-hit"), Key: key[0], Block: key[1],
	}}
	now := int64(0)
	for range rapid.IntRange(1, n).Draw(t, "requests") {
		now += second * rapid.SampledFrom([]int64{0, 0, 1, 1, 2, 5, 20, 100}).Draw(t, "after")
		path, status := rapid.SampledFrom([]string{"/a", "/a", "/b", "/c"}).Draw(t, "path"), rapid.SampledFrom([]int{200, 404}).Draw(t, "status")
		ours := rapid.IntRange(0, 19).Draw(t, "ours") == 0
		q := evidenceoracle.Request{
			At: now + begin.UnixMicro(), Watched: reach.watched(path, status), Reached: reach.reached(path, status), Ours: ours,
			Fields: map[string]string{
				"ip":     fmt.Sprintf("192.0.2.%d", rapid.IntRange(1, 3).Draw(t, "ip")),
				"device": rapid.SampledFrom([]string{"", "tv-1", "tv-2", "tv-3"}).Draw(t, "device"),
				"user":   rapid.SampledFrom([]string{"", "ann", "bob", "cat"}).Draw(t, "user"),
			},
		}
		if !ours {
			q.Good = rapid.SampledFrom([]int{0, 0, 1, 1, 1, 2}).Draw(t, "good")
		}
		sc.log = append(sc.log, q)
		sc.paths = append(sc.paths, fmt.Sprintf(`"path":%q,"status":%d`, path, status))
	}
	return sc
}

// yaml is the rule's document.
func (sc *scene) yaml() string {
	r := &sc.rule
	extend := "never"
	if r.OnHit {
		extend = "on-hit"
	}
	block := fmt.Sprintf("ttl: %ds, extend: %s", r.TTL/second, extend)
	return fmt.Sprintf("id: flood\nowner: tests\nkey: [%s]\non_missing: skip\nlimit: %d\nwindow: %ds\nlateness: %ds\ncooldown: %ds\n", strings.Join(r.Key, ", "),
		r.Limit, r.Window/second, r.Lateness/second, r.Cooldown/second) + fmt.Sprintf(sc.match, block)
}

// document is the rule as weir reads it.
func (sc *scene) document(t interface{ Fatal(...any) }) rules.Document {
	conditions, err := condition.New()
	if err != nil {
		t.Fatal(err)
	}
	docs, err := rules.ParseFiles([]rules.File{{Name: "rule", Src: []byte(sc.yaml())}}, rules.Environment{Identity: vouching(), Conditions: conditions})
	if err != nil {
		t.Fatal(err)
	}
	return docs[0]
}

// vouching is the map of a gateway that vouches for devices, so that blocks may name them.
func vouching() traffic.IdentityMap {
	m := traffic.DefaultIdentityMap()
	m.User.Vouched, m.Device.Vouched = true, true
	return m
}

// text is the log as gateways write it.
func (sc *scene) text() []byte {
	var b bytes.Buffer
	for i, q := range sc.log {
		fmt.Fprintf(&b, `{"v":1,"time":%q,"method":"GET",%s`, time.UnixMicro(q.At).UTC().Format(time.RFC3339Nano), sc.paths[i])
		for _, f := range []string{"ip", "device", "user"} {
			if q.Fields[f] != "" {
				fmt.Fprintf(&b, `,%q:%q`, f, q.Fields[f])
			}
		}
		if q.Good > 0 {
			fmt.Fprintf(&b, `,"plan":%q`, []string{"", "free", "paid"}[q.Good])
		}
		if q.Ours {
			b.WriteString(`,"verdict":{"rule":"other","block":"0123"}`)
		}
		b.WriteString("}\n")
	}
	return b.Bytes()
}

// backtest tries the rule with several limits.
func (sc *scene) backtest(t interface{ Fatal(...any) }, limits []int) *backtest.Result {
	v, _ := rules.NextVersion(nil, sc.document(t))
	text := sc.text()
	file := backtest.File{Name: "log", Size: int64(len(text)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}
	o := backtest.Options{Format: "weir", Identity: vouching(), Rules: []rules.Version{v}, Sweep: backtest.Sweep{Field: backtest.SweepLimit, Limits: limits}}
	r, err := backtest.Run(context.Background(), o, []backtest.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The oracle is what a backtest says, limit by limit: so it can judge what claims to say the same without the log.
func TestOracleAgreesWithBacktest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sc := drawScene(t, 200, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		limits := []int{sc.rule.Limit, sc.rule.Limit + 1, sc.rule.Limit + 4}
		got := sc.backtest(t, limits)
		for i := range got.Rules {
			r := sc.rule
			r.Limit = limits[i]
			truth := r.Judge(sc.log, nil, 0, 1<<62)
			g := &got.Rules[i]
			episodes, events := 0, 0
			for _, s := range truth.Sources {
				episodes, events = episodes+s.Episodes, events+s.Events
			}
			if int(g.Block.Refused) != truth.Refused || int(g.Episodes) != episodes || int(g.Over) != events || int(g.Matched) != truth.Matched || int(g.Counted) != truth.Counted ||
				int(got.Events) != truth.All || int(got.OwnRefusals) != truth.Ours {
				t.Fatalf("limit %d: backtest %+v, block %+v; oracle %+v, %d episodes with %d events", r.Limit, g, *g.Block, truth, episodes, events)
			}
			if slices.Equal(r.Key, r.Block) && int(g.Block.Held) != len(truth.Blockable()) {
				t.Fatalf("limit %d: backtest held %d, oracle %d", r.Limit, g.Block.Held, len(truth.Blockable()))
			}
		}
	})
}
