package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// PostgreSQL comes back from a dump that is older than a few changes of a mode: Redis is ahead of it by some
// generations. What is promoted and demoted from then on takes effect, and who does it is told what was found. So it
// does where somebody has written a mode into Redis.
func TestModesTakeEffectAfterAnOlderDump(t *testing.T) {
	b := newBed(t, nil)
	b.Apply(t, historytest.Document("tokens"))
	act := func(path string, body any) (done acts.ModeDone) {
		t.Helper()
		b.ask(t, "adam", "POST", "/api/v1/rules/tokens/"+path, body).read(t, &done)
		inRedis, err := b.redis.Modes(t.Context())
		if err != nil || len(inRedis) != 1 || !done.Published || inRedis[0].Mode != done.Mode ||
			inRedis[0].Generation != done.Generation {
			t.Errorf("%s: %s of generation %d, published %v (%s); in Redis %+v, %v", path, done.Mode,
				done.Generation, done.Published, done.Unpublished, inRedis, err)
		}
		return done
	}
	promote := acts.PromoteRequest{Reason: "abuse", Override: "no evidence in a test"}
	reason := api.Reasoned{Reason: "a hotel"}
	act("promote", promote)
	if _, err := b.Conn.Exec(t.Context(), "CREATE TABLE dump AS TABLE "+historytest.Schema+".rule_modes"); err != nil {
		t.Fatal(err)
	}
	act("demote", reason)
	act("promote", promote)
	act("demote", reason)
	late := act("promote", promote)
	for _, statement := range []string{"DELETE FROM " + historytest.Schema + ".rule_modes", "INSERT INTO " +
		historytest.Schema + ".rule_modes SELECT * FROM dump"} {
		if _, err := b.Conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	done := act("demote", reason)
	if done.Generation <= late.Generation || len(done.Overtaken) == 0 || !strings.Contains(done.Overtaken[0],
		"rule tokens: Redis had generation") {
		t.Errorf("demoted after the dump came back: generation %d after %d, told %q", done.Generation,
			late.Generation, done.Overtaken)
	}
	if done = act("promote", promote); len(done.Overtaken) != 0 {
		t.Errorf("told of nothing new: %q", done.Overtaken)
	}
	act("demote", reason)

	forged := rules.ModeState{Rule: "tokens", Mode: rules.ModeBlock, Generation: done.Generation + 1000, Newest: 1}
	if err := b.redis.PublishModes(t.Context(), traffic.At(time.Now()), []rules.ModeState{forged}); err != nil {
		t.Fatal(err)
	}
	if done = act("demote", reason); done.Mode != rules.ModeShadow || len(done.Overtaken) == 0 {
		t.Errorf("a rule in shadow that Redis lets block is demoted: %+v", done)
	}
}
