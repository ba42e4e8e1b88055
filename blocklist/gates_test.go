package blocklist

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/internal/testbed"
)

// someGate is a report of a gate that does what it should.
func (b *bare) someGate(instance string) GateReport {
	return GateReport{
		Instance: instance, Build: "1.4", Identity: "0123456789abcdef", Blocks: 3, Passed: 70, Refused: 2,
		Started: b.now(), At: b.now(),
	}
}

func (b *bare) report(r GateReport) {
	b.t.Helper()
	if err := NewGateBook(b.store).Report(b.t.Context(), r); err != nil {
		b.t.Fatal(err)
	}
}

// listed are the instances that are listed, and how many cannot be read.
func (b *bare) listed() (instances []string, unreadable int) {
	b.t.Helper()
	found, err := NewGateBook(b.store).List(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, g := range found.Gates {
		instances = append(instances, g.Instance)
	}
	return instances, found.Unreadable
}

func (b *bare) wantListed(unreadable int, want ...string) {
	b.t.Helper()
	if got, odd := b.listed(); !slices.Equal(got, want) || odd != unreadable {
		b.t.Errorf("listed %q and %d that cannot be read, want %q and %d", got, odd, want, unreadable)
	}
}

func TestGatesTellOfThemselves(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		b := newBare(t, server)
		b.wantListed(0)
		said := b.someGate("edge-2")
		said.Unready, said.Behind, said.FailedOpen = "no epoch", 1.5, 9
		b.report(b.someGate("edge-1"))
		b.report(said)
		b.report(said) // as it does every ten seconds
		found, err := NewGateBook(b.store).List(t.Context())
		if err != nil || len(found.Gates) != 2 {
			t.Fatalf("%+v, %v", found, err)
		}
		said.Format, said.Namespace = gateFormat, b.keys.Namespace()
		if found.Gates[1] != said {
			t.Errorf("told %+v, read %+v", said, found.Gates[1])
		}
		for _, key := range []string{b.keys.Gates(), b.keys.Gate("edge-1")} {
			if ttl, err := b.client.PTTL(t.Context(), key).Result(); err != nil || ttl <= 0 || ttl > GateTTL {
				t.Errorf("%s goes in %s (%v), want %s at most", key, ttl, err, GateTTL)
			}
		}
		if err := NewGateBook(b.store).Forget(t.Context(), "edge-1"); err != nil {
			t.Fatal(err)
		}
		b.wantListed(0, "edge-2")
	})
}

// Nobody is forgotten since another gate's clock is wrong, and whoever has stopped is.
func TestGatesAreForgottenByTheClockOfRedis(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	b := newBare(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	at := time.Now()
	server.SetTime(at)
	b.report(b.someGate("right"))
	b.add(24 * time.Hour)
	b.report(b.someGate("ahead"))
	b.add(-48 * time.Hour)
	b.report(b.someGate("behind"))
	b.wantListed(0, "ahead", "behind", "right")

	server.SetTime(at.Add(GateTTL + time.Second))
	server.FastForward(GateTTL + time.Second)
	b.report(b.someGate("new"))
	b.wantListed(0, "new")
	if n, err := b.client.ZCard(t.Context(), b.keys.Gates()).Result(); err != nil || n != 1 {
		t.Errorf("%d gates are remembered (%v), want the one that tells of itself", n, err)
	}
}

// What is under the names of gates may be anybody's. It costs a bounded look, and is nobody.
func TestReportsOfWhoIsNoGate(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		b := newBare(t, server)
		b.report(b.someGate("edge-1"))
		good := b.someGate("")
		good.Format, good.Namespace = gateFormat, b.keys.Namespace()
		write := func(instance, value string) {
			t.Helper()
			add := b.client.ZAdd(t.Context(), b.keys.Gates(), redis.Z{Score: 9e15, Member: instance})
			set := b.client.Set(t.Context(), b.keys.Gate(instance), value, GateTTL)
			if err := errors.Join(add.Err(), set.Err()); err != nil {
				t.Fatal(err)
			}
		}
		of := func(instance string, edit func(r *GateReport)) string {
			r := good
			r.Instance = instance
			edit(&r)
			return encode(&r)
		}
		unchanged := func(*GateReport) {}
		odd := map[string]string{
			"no-json": "yes", "null": "null", "list": "[]", "later": of("later", func(r *GateReport) { r.Format = 2 }),
			"other": of("somebody", unchanged), "space": of("space", func(r *GateReport) { r.Namespace = "wier" }),
			"huge": `{"v":1,"build":"` + strings.Repeat("x", 1<<20) + `"}`, "bidi": of("bidi",
				func(r *GateReport) { r.Build = "\u202e1.4" }),
			"lines": of("lines", func(r *GateReport) { r.Unready = "a\nok  gates  all is well" }), "below": of("below",
				func(r *GateReport) { r.Refused = -1 }),
			"ever": of("ever", func(r *GateReport) { r.Behind = -1 }), "ages": of("ages",
				func(r *GateReport) { r.Behind = 1e300 }),
			"stale": of("stale", func(r *GateReport) { r.Staleness = 4e9 }), "slots": of("slots",
				func(r *GateReport) { r.Missing = 16385 }),
			"count": `{"v":1,"instance":"count","passed":99999999999999999999}`, "never": of("never",
				func(r *GateReport) { r.Started = 0 }),
			"a}:b": of("a}:b", unchanged), "rule\x00": of("rule\x00", unchanged), "ü": of("ü", unchanged),
		}
		for instance, value := range odd {
			write(instance, value)
		}
		if err := b.client.LPush(t.Context(), b.keys.Gate("list-of"), "x").Err(); err != nil {
			t.Fatal(err)
		}
		if err := b.client.ZAdd(t.Context(), b.keys.Gates(), redis.Z{Score: 9e15,
			Member: "list-of"}).Err(); err != nil {
			t.Fatal(err)
		}
		b.wantListed(len(odd)+1, "edge-1")
	})
}

// A report that nobody could read is not written.
func TestAReportNamesWhatIsWrongWithIt(t *testing.T) {
	b := newBare(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	for name, edit := range map[string]func(r *GateReport){
		"instance: got":   func(r *GateReport) { r.Instance = "a b" },
		"allowed: 1 to":   func(r *GateReport) { r.Instance = strings.Repeat("x", 129) },
		`got ""`:          func(r *GateReport) { r.Instance = "" },
		"is too long":     func(r *GateReport) { r.Build = strings.Repeat("x", 129) },
		"is negative":     func(r *GateReport) { r.Missing = -1 },
		"started":         func(r *GateReport) { r.Started = 0 },
		"cannot be print": func(r *GateReport) { r.Unready = "a\x1b[2J" },
	} {
		r := b.someGate("edge-1")
		edit(&r)
		if err := NewGateBook(b.store).Report(t.Context(), r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.wantListed(0)
}

// The report in docs/blocks.md is one.
func TestDocumentedGate(t *testing.T) {
	text, err := os.ReadFile("../docs/blocks.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n## Gates\n")
	_, after, open := strings.Cut(after, "```json\n")
	shown, _, closed := strings.Cut(after, "```")
	if r, ok := readGate(shown, "edge-7-31-abcdef012345", "weir"); !found || !open || !closed || !ok ||
		r.Blocks != 1204 {
		t.Errorf("%q is read as %+v", shown, r)
	}
}

// However many tell of themselves, as many are remembered as are listed, and whoever claims to be there for ever
// displaces nobody.
func TestGatesAreBounded(t *testing.T) {
	b := newBare(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	now, err := b.client.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	add := func(from time.Time) {
		t.Helper()
		var many []redis.Z
		for i := range gatesMost + 500 {
			many = append(many, redis.Z{Score: float64(from.UnixMilli() + int64(i)),
				Member: fmt.Sprint(from.UnixMilli(), "-", i)})
		}
		if err := b.client.ZAdd(t.Context(), b.keys.Gates(), many...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		from time.Time
		want int64
	}{{now.Add(GateTTL / 2), gatesMost}, {now.Add(time.Hour), 1}} {
		if err := b.client.Del(t.Context(), b.keys.Gates()).Err(); err != nil {
			t.Fatal(err)
		}
		add(tc.from)
		b.wantListed(0) // all have stopped
		b.report(b.someGate("edge-1"))
		b.wantListed(0, "edge-1")
		if n, err := b.client.ZCard(t.Context(), b.keys.Gates()).Result(); err != nil || n != tc.want {
			t.Errorf("%d are remembered (%v), want %d", n, err, tc.want)
		}
	}
}

// Gates of other namespaces of the same database are found, by a bounded look at its keys.
func TestOtherNamespacesOfTheSameDatabase(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	at := func(namespace string) *bare {
		b := newBare(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
		store, err := NewStore(b.client, namespace)
		if err != nil {
			t.Fatal(err)
		}
		b.store, b.keys = store, store.keys
		return b
	}
	own, other := at("weir"), at("wier")
	own.report(own.someGate("edge-1"))
	unready := other.someGate("edge-2")
	unready.Unready = "no epoch"
	other.report(unready)
	// These are nobody's.
	for _, key := range []string{"<b>:v1:gates:{<b>:v1:rules}", "wier:v1:gates:{weir:v1:rules}", "x:v1:gates:{}"} {
		if err := own.client.Set(t.Context(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	found, whole, err := NewGateBook(own.store).Others(t.Context(), 10)
	if err != nil || !whole || len(found) != 1 || found[0].Namespace != "wier" || found[0].Err != nil ||
		len(found[0].Gates) != 1 ||
		found[0].Gates[0].Unready != "no epoch" {
		t.Errorf("%+v, whole: %v, %v", found, whole, err)
	}
	if _, whole, err := NewGateBook(own.store).Others(t.Context(), 1); err != nil || whole {
		t.Errorf("one step is said to be all of it: %v, %v", whole, err)
	}
}
