package doctor

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/ingest"
)

// gateOf is a gate of the world that does what it should, but for what edit changes.
func gateOf(w *world, edit func(g *blocklist.GateReport)) blocklist.GateReport {
	g := blocklist.GateReport{Instance: "edge-1", Build: w.build, Identity: w.routing.Identity.Fingerprint(),
		Blocks: 12}
	edit(&g)
	return g
}

// rowsOfGates are of gates that do not do what the installation asks, and of a Redis that nobody writes to.
func rowsOfGates() []row {
	gate := func(name string, edit func(g *blocklist.GateReport), check string, st Status, text, remedy string) row {
		return row{"gate: " + name, func(w *world) {
			other := gateOf(w, func(g *blocklist.GateReport) { g.Instance = "edge-0" })
			w.gates.Gates = []blocklist.GateReport{other, gateOf(w, edit)}
		}, check, st, text, remedy, nil}
	}
	others := func(name string, o blocklist.OtherGates, st Status, text, remedy string) row {
		return row{"other gates: " + name, func(w *world) { w.others = []blocklist.OtherGates{o} }, "gates of wier",
			st, text, remedy, nil}
	}
	unready := blocklist.GateListing{Gates: []blocklist.GateReport{{Instance: "a"},
		{Instance: "b", Unready: "no epoch"}}}
	return []row{
		{"no gate", func(*world) {}, "gates", OK, "none has told of itself within 30s", "", nil},
		gate("all is well", func(*blocklist.GateReport) {}, "gates", OK, "2 gates, 12 blocks at most", ""),
		gate("not ready", func(g *blocklist.GateReport) { g.Unready = "this Redis has never had blocks" },
			"gate edge-1", Fail,
			"is not ready and lets everybody pass whom it does not know: this Redis has never had blocks",
			"weir ready"),
		gate("another identity map", func(g *blocklist.GateReport) { g.Identity = "0123456789abcdef" }, "gate edge-1",
			Fail,
			"another identity map (0123456789abcdef) than the one in effect", "restart it"),
		gate("another installation's Redis", func(g *blocklist.GateReport) {
			g.Foreign = `redis:6379 belongs to installation "staging"`
		}, "gate edge-1", Fail, `goes on with what it had: redis:6379 belongs to installation "staging"`,
			"its own installation's Redis"),
		gate("modes are not signed", func(g *blocklist.GateReport) { g.HeldBack = 3 }, "gate edge-1", Fail,
			"holds 3 rules as in shadow", "weir gate trust"),
		gate("another build", func(g *blocklist.GateReport) { g.Build = "1.3" }, "gates", OK,
			"1 gate of build 1.3; 1 gate of build 1.4, this is 1.4", ""),
		{"gate: many builds", func(w *world) {
			for i := range 7 {
				w.gates.Gates = append(w.gates.Gates,
					gateOf(w, func(g *blocklist.GateReport) { g.Build = fmt.Sprint("1.", i) }))
			}
		}, "gates", OK, "1 gate of build 1.4; and 2 builds more, this is 1.4", "", nil},
		gate("behind", func(g *blocklist.GateReport) { g.Behind = 45 }, "gate edge-1", Warn,
			"knows nothing newer than 45s", "its log"),
		gate("stale", func(g *blocklist.GateReport) { g.Staleness = 31 }, "gate edge-1", Warn,
			"knows nothing newer than 31s", "its log"),
		gate("within its bound", func(g *blocklist.GateReport) { g.Behind, g.Staleness = 30, 29 }, "gates", OK,
			"2 gates", ""),
		gate("minutes ahead", func(g *blocklist.GateReport) { g.Clock = -660 }, "gate edge-1", Fail,
			"has a clock that is 11m0s ahead of Redis", "WeirClockApart"),
		gate("a little behind", func(g *blocklist.GateReport) { g.Clock = 1.5 }, "gate edge-1", Warn,
			"has a clock that is 1.5s behind Redis", "NTP"),
		gate("as good as Redis", func(g *blocklist.GateReport) { g.Clock = -0.9 }, "gates", OK, "2 gates", ""),
		gate("lacks a part", func(g *blocklist.GateReport) { g.Missing = 5461 }, "gate edge-1", Warn,
			"has not read 5461 of the 16,384", "masters"),
		gate("observes", func(g *blocklist.GateReport) { g.Observing = true }, "gates", OK,
			"1 refuse nobody, since they observe", ""),
		{"many gates with one mistake", func(w *world) {
			for i := range 12 {
				w.gates.Gates = append(w.gates.Gates, gateOf(w, func(g *blocklist.GateReport) {
					g.Instance, g.Missing = fmt.Sprint("edge-", i), 1
				}))
			}
		}, "gates", Warn, "4 more like these", "/api/v1/health",
			[]string{"gate edge-0", "gate edge-1", "gate edge-2", "gate edge-3", "gate edge-4", "gate edge-5",
				"gate edge-6", "gate edge-7"}},
		{"reports of a later build", func(w *world) { w.gates.Unreadable = 2 }, "gates", OK,
			"0 gates, 0 blocks at most", "", nil},
		others("a typing error", blocklist.OtherGates{Namespace: "wier", GateListing: unready}, Warn,
			"2 gates in this database, and 1 of them not ready", "set namespace: weir"),
		others("another installation", blocklist.OtherGates{Namespace: "wier",
			GateListing: blocklist.GateListing{Gates: unready.Gates[:1]}}, OK,
			"1 gate in this database, of another installation", ""),
		others("not to be read", blocklist.OtherGates{Namespace: "wier", Err: errors.New("NOPERM")}, OK,
			"cannot be read from here", ""),
		{"more keys than are looked through", func(w *world) { w.cut = true }, "gates of others", OK,
			"only the first million keys", "", nil},
		{"the epoch is there", func(*world) {}, "redis namespace", OK, "the stage enforce has been there", "", nil},
		{"another Redis than ENFORCE's", func(w *world) { w.flushed, w.enforcers = true, 2 }, "redis namespace", Fail,
			"weir:v1:epoch is missing, though 2 members of enforce's group work", "redis.url", nil},
		{"ENFORCE at the Redis of another installation", func(w *world) {
			w.foreign = &blocklist.ForeignError{}
			w.stages[ingest.StageEnforce].group.Members, w.stages[ingest.StageEnforce].records = 0, 3
		}, "stage enforce", Fail, "stands still, if it runs, as Redis is another installation's; 3 records left",
			"redis namespace",
			[]string{"redis namespace"}},
		{"a Redis of another installation", func(w *world) {
			w.foreign = &blocklist.ForeignError{Place: "redis cache:6379",
				Owner: blocklist.Owner{Installation: "staging\x1b[2J"}, Mine: "mine"}
		}, "redis namespace", Fail, `belongs to installation "staging\x1b[2J" (since `, "--take-redis", nil},
		{"ENFORCE has never run", func(w *world) { w.flushed = true }, "redis namespace", OK,
			"until weir run with enforce starts", "", nil},
	}
}

// A doubt is told of one gate only, and the identity map that is not known is no doubt.
func TestDoubtsOfAGate(t *testing.T) {
	g := blocklist.GateReport{Identity: "a"}
	if all := g.Doubts(""); len(all) != 0 {
		t.Errorf("with no identity map to compare: %+v", all)
	}
	g.Unready, g.Behind, g.Missing = "no epoch", 99, 7
	if all := g.Doubts("b"); len(all) != 2 || all[0].Kind != blocklist.GateUnready ||
		all[1].Kind != blocklist.GateIdentity {
		t.Errorf("one that is not ready is told by %+v", all)
	}
}
