package acceptance

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirhq/weir/internal/testbed"
)

// canaryRule is promoted on the word of a person: what it would refuse is no part of the test. Steps are long: the test says when one is over.
const canaryRule = `
id: tokens
owner: identity
match: {method: POST, path: /v1/tokens}
key: [ip]
limit: 2
window: 10m
lateness: 5s
max_lag: 30m
cooldown: 1s
block: {ttl: 1h}
promote: {max_traffic_share: 100%}
canary: {steps: [10%, 50%], hold: 1h}
`

// flock are sources that are all over the limit.
type flock struct {
	*replays
	secret []byte
	all    []string
	share  atomic.Int64 // of the block keys, in hundredths of a percent: nobody outside it may be refused
	asked  atomic.Int64
}

// TestACanaryHoldsItsOwnShare puts a rule into canary, whose sources are all over the limit, and asks a gate about every one of them all the
// time: nobody outside the share is ever refused, while it rises by its steps, and while ENFORCE is killed and started anew. Everybody within it
// is, until a source that is known to be good is: then the canary falls back to shadow by itself, and lets everybody go.
func TestACanaryHoldsItsOwnShare(t *testing.T) {
	t.Parallel()
	in := newInstall(t, [3]int{1, 4, 2}, fmt.Sprintf("{url: %q}", testbed.Redis(t)), 0, knownGood)
	in.Weir("rules", "apply", "-f", in.Write("rules.yaml", canaryRule), "--reason", "tests")
	f := &flock{replays: newReplays(t, in), secret: in.secret()}
	stages, gate := in.start("run"), in.start("gate")
	waitForGate(t, in)
	f.watch()
	f.come(0, 150)
	f.holds(0)

	f.share.Store(1000)
	in.Weir("rules", "promote", "tokens", "--to", "canary", "--reason", "tests", "--yes", "--override", "tests")
	// The rule is too young for evidence, without which nothing would be compared: this is what it would have
	// predicted.
	in.execute(`UPDATE {ns}.rule_modes SET predicted = '{"known_good": 0, "traffic": 1}'`)
	f.holds(1000) // who was over the limit before
	stages.kill()
	f.come(150, 220)
	stages = in.start("run")
	f.holds(1000)

	f.share.Store(5000)
	in.pass("1h")
	f.holds(5000)
	stages.kill()
	stages = in.start("run")
	f.come(220, 260)
	f.holds(5000)
	if got := in.mode(); got != "canary 2 5000" {
		t.Errorf("the rule is in %s", got)
	}

	f.send(f.within(5000, 1)[0], "paid") // one of those that are held proves to be good
	f.holds(0)
	if got := in.mode(); got != "shadow 0 0" {
		t.Errorf("the rule is in %s, want shadow", got)
	}
	f.share.Store(0)
	f.come(260, 280)
	f.holds(0)
	t.Logf("%d answers, %d sources", f.asked.Load(), len(f.all))
	stages.stop()
	gate.stop()
}

// secret is that of the installation.
func (in *install) secret() (value []byte) {
	in.query("SELECT value FROM {ns}.secrets", func(rows pgx.Rows) error { return rows.Scan(&value) })
	return value
}

// pass has the present step of the canary begin so much earlier.
func (in *install) pass(interval string) {
	in.execute("UPDATE {ns}.rule_modes SET canary_since = canary_since - interval '" + interval + "'")
}

// mode is the rule's mode, with the step of a canary and its share.
func (in *install) mode() (text string) {
	in.query("SELECT mode, coalesce(canary_step, 0), coalesce(canary_share, 0) FROM {ns}.rule_modes", func(rows pgx.Rows) error {
		var mode string
		var step, share int
		err := rows.Scan(&mode, &step, &share)
		if mode != "canary" {
			step, share = 0, 0
		}
		text = fmt.Sprint(mode, " ", step, " ", share)
		return err
	})
	return text
}

func sourceAddress(i int) string { return fmt.Sprintf("198.51.%d.%d", 100+i/200, 1+i%200) }

// side is docs/blocks.md's rule of who is within a canary's share, computed apart.
func (f *flock) side(ip string) int64 {
	mac := hmac.New(sha256.New, f.secret)
	_, _ = fmt.Fprintf(mac, "canary\x00tokens\x00ip=%s%%2F32\x00", ip)
	side := new(big.Int).SetUint64(binary.BigEndian.Uint64(mac.Sum(nil)))
	return side.Mul(side, big.NewInt(10_000)).Rsh(side, 64).Int64()
}

// within are at least some of the sources that a share holds.
func (f *flock) within(share int64, least int) (out []string) {
	f.t.Helper()
	for _, ip := range f.all {
		if f.side(ip) < share {
			out = append(out, ip)
		}
	}
	if len(out) < least {
		f.t.Fatalf("of %d sources %d are within %d: the test proves nothing", len(f.all), len(out), share)
	}
	return out
}

// send tells of four requests of a source.
func (f *flock) send(ip, plan string) {
	f.t.Helper()
	var records []*kgo.Record
	for range 4 {
		value, err := json.Marshal(map[string]any{
			"v": 1, "time": time.Now().UTC().Format(time.RFC3339Nano), "ip": ip, "method": http.MethodPost, "path": "/v1/tokens", "status": 200, "plan": plan,
		})
		if err != nil {
			f.t.Fatal(err)
		}
		records = append(records, &kgo.Record{Value: value})
	}
	if err := f.producer.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		f.t.Fatal(err)
	}
}

// come brings more sources.
func (f *flock) come(from, to int) {
	f.t.Helper()
	for i := from; i < to; i++ {
		f.send(sourceAddress(i), "free")
		f.all = append(f.all, sourceAddress(i))
	}
}

// refused reports whether the gate refuses a source.
func (f *flock) refused(ip string) (bool, error) {
	status, _, err := f.ask("api.example.com", &raw{ip: ip, path: "/v1/tokens"})
	f.asked.Add(1)
	return status == http.StatusTooManyRequests, err
}

// holds waits until history knows that all sources are over the limit, and the gate refuses those within the share and no others.
func (f *flock) holds(share int64) {
	f.t.Helper()
	want := f.within(share, int(share/500))
	testbed.Eventually(f.t, 2*time.Minute, func() error {
		hits := 0
		f.in.query("SELECT count(DISTINCT subject) FROM {ns}.hits_all WHERE rule = 'tokens'", func(rows pgx.Rows) error { return rows.Scan(&hits) })
		if hits != len(f.all) {
			return fmt.Errorf("%d of %d sources are over the limit", hits, len(f.all))
		}
		for _, ip := range f.all {
			held, err := f.refused(ip)
			if err != nil {
				return err
			}
			if held != slices.Contains(want, ip) {
				return fmt.Errorf("%s, at %d: refused %t, with %d sources within %d", ip, f.side(ip), held, len(want), share)
			}
		}
		return nil
	})
}

// watch asks about all sources that there will be, again and again until the test ends, and fails it where one is refused outside of the share.
func (f *flock) watch() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	f.t.Cleanup(func() { stop(); <-ended })
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i = (i + 1) % 280 {
			ip := sourceAddress(i)
			share := f.share.Load()
			held, err := f.refused(ip)
			if share = max(share, f.share.Load()); err == nil && held && f.side(ip) >= share {
				f.t.Errorf("%s, at %d, is refused in a canary of %d", ip, f.side(ip), share)
				return
			}
		}
	}()
}
