package acts_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func blocker(t *testing.T, in *installation) *acts.Service {
	t.Helper()
	s, err := acts.New(acts.Options{
		Rules: in.Rules, Gates: in, Blocks: in, Releases: in, Documents: in, Dossiers: in, Clock: now,
		Logger: slog.New(slog.DiscardHandler),
		Orders: in.Orders, Knows: explore.New(in.Store), Partitions: in.Partitions,
		NeverBlock: blocklist.NewNeverBlock([]netip.Prefix{netip.MustParsePrefix("198.51.100.128/25"),
			netip.MustParsePrefix("2001:db8:ffff::/48")}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Whatever is asked that must not be, nothing is ordered, and the error says what is allowed.
func TestBlocksThatAreRefused(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	s := blocker(t, in)
	admin := access.Actor{Name: "ann", Role: access.Admin, Via: access.ViaOIDC}
	good := acts.BlockRequest{Subject: "ip=203.0.113.7%2F32", Everything: true, For: "1h", Reason: "ticket 1"}
	with := func(change func(*acts.BlockRequest)) acts.BlockRequest {
		r := good
		change(&r)
		return r
	}
	of := func(s traffic.Subject) acts.BlockRequest { return with(func(r *acts.BlockRequest) { r.Subject = s }) }
	lasting := func(length string) acts.BlockRequest { return with(func(r *acts.BlockRequest) { r.For = length }) }
	matching := func(match string) acts.BlockRequest {
		return with(func(r *acts.BlockRequest) { r.Everything, r.Match = false, match })
	}
	for name, tc := range map[string]struct {
		who  access.Actor
		r    acts.BlockRequest
		want string
	}{
		"a viewer":   {access.Actor{Name: "v", Role: access.Viewer}, good, "block needs the role admin"},
		"an analyst": {access.Actor{Name: "v", Role: access.Analyst}, good, "block needs the role admin"},
		"an owner": {access.Actor{Name: "v", Role: access.Owner, Owners: []string{"identity", ""}},
			good, "block needs the role admin"},
		"nobody": {access.Actor{}, good, "nobody is signed in"},
		"a viewer who only looks": {access.Actor{Name: "v", Role: access.Viewer},
			with(func(r *acts.BlockRequest) { r.DryRun = true }), "block needs the role admin"},
		"no reason": {admin, with(func(r *acts.BlockRequest) { r.Reason = "…" }), "reason"},
		"a long reason": {admin, with(func(r *acts.BlockRequest) { r.Reason = strings.Repeat("x", 3000) }),
			"reason"},
		"nobody's subject":       {admin, of(""), "subject"},
		"no field":               {admin, of("path=%2Fx"), "subject"},
		"a field twice":          {admin, of("user=a&user=b"), "subject"},
		"fields out of order":    {admin, of("user=a&ip=203.0.113.7%2F32"), "subject"},
		"a bare address":         {admin, of("ip=203.0.113.7"), "subject"},
		"host bits":              {admin, of("ip=203.0.113.7%2F24"), "subject"},
		"everybody":              {admin, of("ip=0.0.0.0%2F0"), "/16 or longer"},
		"everybody of IPv6":      {admin, of("ip=%3A%3A%2F0"), "IPv6 /32 or longer"},
		"a country":              {admin, of("ip=203.0.0.0%2F15"), "/16 or longer"},
		"an IPv4-mapped address": {admin, of("ip=%3A%3Affff%3A203.0.113.7%2F128"), "subject"},
		"a brace":                {admin, of("user={x}"), "subject"},
		"a NUL":                  {admin, of("user=\x00"), "subject"},
		"a line break":           {admin, of("user=a\nb"), "subject"},
		"neither":                {admin, with(func(r *acts.BlockRequest) { r.Everything = false }), "one of the two"},
		"both": {admin, with(func(r *acts.BlockRequest) { r.Match = "{path: /a}" }),
			"one of the two"},
		"an empty match":       {admin, matching("{}"), "everything, where all requests are to be held"},
		"a match of answers":   {admin, matching("{status: 401}"), "what only an answer or an event has"},
		"a match that is none": {admin, matching("/v1/login"), "a mapping"},
		"odd bytes":            {admin, matching("\xff\x00"), "UTF-8"},
		"a bomb":               {admin, matching("{path: [&a [x,x], *a, *a]}"), "match"},
		"no time":              {admin, lasting(""), "1s to 31d"},
		"no time at all":       {admin, lasting("0s"), "1s to 31d"},
		"too long":             {admin, lasting("32d"), "1s to 31d"},
		"much too long":        {admin, lasting("99999999999999999999d"), "1s to 31d"},
		"backwards":            {admin, lasting("-1h"), "1s to 31d"},
		"a wait without end":   {admin, with(func(r *acts.BlockRequest) { r.Wait = 1 << 62 }), "wait"},
		"a proxy": {admin, of("ip=198.51.100.200%2F32"),
			"198.51.100.128/25 is in never_block of the configuration"},
		"a prefix with a proxy": {admin, of("ip=198.51.100.0%2F24"),
			"198.51.100.128/25 is in never_block of the configuration"},
		"a device at a proxy": {admin, of("ip=2001%3Adb8%3Affff%3A%3A%2F64&device=tv"),
			"2001:db8:ffff::/48 is in never_block"},
		"a private address": {admin, of("ip=10.1.2.3%2F32"),
			"10.0.0.0/8 is in the addresses that are nobody's in particular"},
		"loopback": {admin, of("ip=%3A%3A%2F64"), "nobody's in particular"},
	} {
		done, err := s.Block(t.Context(), tc.who, tc.r)
		if err == nil || !strings.Contains(err.Error(), tc.want) || done.ID != "" {
			t.Errorf("%s: %+v, %v, want %q", name, done, err, tc.want)
		}
	}
	if due, err := in.Orders.Due(t.Context(), 10); err != nil || len(due) != 0 {
		t.Errorf("ordered all the same: %+v, %v", due, err)
	}
}

// Who looks first is told who is behind the source, and nothing is ordered. Who waits for an ENFORCE that is not there
// is told that it is ordered; what ENFORCE says in the end is the answer.
func TestBlocksAreLookedAtAndWaitedFor(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	s := blocker(t, in)
	admin := access.Actor{Name: "ann", Role: access.Admin, Via: access.ViaOIDC}
	at := now().Add(-time.Minute)
	in.Record(t, detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: strings.Repeat("cd", 16), Rule: "logins",
		RuleVersion: 1, Lineage: 1, Phase: detectors.PhaseOpen,
		Subject: "ip=192.0.2.1%2F32", BlockSubject: "ip=192.0.2.1%2F32", Limit: 5, WindowMS: 60_000, Count: 8, Peak: 8,
		Opened: at, First: at, Last: at, Seen: at, Generation: 1,
		Good: detectors.KnownGood, Samples: []string{`{"time":"2026-11-20T00:00:00Z","user":"alice","ip":"192.0.2.1"}`},
	})
	r := acts.BlockRequest{Subject: "ip=192.0.2.1%2F32", Match: "{path: /v1/*}", For: "2h", DryRun: true}
	looked, err := s.Block(t.Context(), admin, r)
	if err != nil || looked.ID != "" || looked.Back != "any method /v1/*" || looked.For != "2h" ||
		looked.Behind == nil {
		t.Fatalf("looked: %+v, %v", looked, err)
	}
	lines := strings.Join(looked.Behind.Lines(func(_, value string) string { return value }), "\n")
	for _, want := range []string{"2 episodes with 17 events over the limit since ", "over the limit of flood, logins",
		"known good in 1 of 1 episode", "seen with 1 device: tv-1", "seen with 1 user: alice", "running: 1"} {
		if !strings.Contains(lines, want) {
			t.Errorf("who is behind it lacks %q:\n%s", want, lines)
		}
	}
	if due, err := in.Orders.Due(t.Context(), 10); err != nil || len(due) != 0 {
		t.Fatalf("looked at, it is ordered: %+v, %v", due, err)
	}

	r.DryRun, r.Reason, r.Wait = false, "ticket 1", 300*time.Millisecond
	var unfinished *acts.UnfinishedError
	done, err := s.Block(t.Context(), admin, r)
	if !errors.As(err, &unfinished) || done.ID == "" || done.Done || !strings.Contains(err.Error(),
		"is weir run --stages enforce running?") {
		t.Errorf("without ENFORCE: %+v, %v", done, err)
	}
	if !rules.IsByHand(done.Rule) || done.Rule == rules.ByHand || done.Until.Sub(now()) > 2*time.Hour {
		t.Errorf("ordered %+v", done)
	}
	for outcome, want := range map[string]string{"written": "", "unchanged": "",
		"never_block": "the source is never blocked", "released": "released in the same moment"} {
		settle, cancel := context.WithCancel(t.Context())
		go in.enforce(settle, outcome)
		r.Wait = 30 * time.Second
		done, err := s.Block(t.Context(), admin, r)
		cancel()
		if stands := err == nil; stands != (want == "") || done.Done != stands || done.Outcome != outcome ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("ENFORCE says %s: %+v, %v", outcome, done, err)
		}
	}
}

// enforce has the last word on every order.
func (in *installation) enforce(ctx context.Context, outcome string) {
	for ctx.Err() == nil {
		due, _ := in.Orders.Due(ctx, 100) // asked again
		for _, o := range due {
			_ = in.Orders.Settle(ctx, o.ID, outcome, true)
		}
		if retry.Sleep(ctx, 10*time.Millisecond) != nil {
			return
		}
	}
}

// A block by hand is released as any other is, whatever its key, by an analyst, and nobody else's rule is needed.
func TestBlocksByHandAreReleased(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	s := blocker(t, in)
	done, err := s.Release(t.Context(), access.Actor{Name: "ann", Role: access.Analyst, Via: access.ViaOIDC},
		acts.ReleaseRequest{Rule: rules.ByHand, Subject: "user=alice", Force: true, Reason: "ticket 1"})
	if err != nil || done.Release == "" {
		t.Errorf("released: %+v, %v", done, err)
	}
	// A source is released, and blocked, as gates read what is typed.
	done, err = s.Release(t.Context(), access.Actor{Name: "ann", Role: access.Analyst, Via: access.ViaOIDC},
		acts.ReleaseRequest{Rule: rules.ByHand, Subject: "user=a%0Ab", Force: true, Reason: "ticket 1"})
	if err != nil || done.Subject != "user=a%EF%BF%BDb" {
		t.Errorf("released: %+v, %v", done, err)
	}
	if looked, err := s.Block(t.Context(), access.Actor{Name: "ann", Role: access.Admin, Via: access.ViaOIDC},
		acts.BlockRequest{
			Subject: "user=a%0Ab", Everything: true, For: "1h", DryRun: true}); err != nil ||
		looked.Subject != "user=a%EF%BF%BDb" {
		t.Errorf("blocked: %+v, %v", looked, err)
	}
	var nothing *acts.NotBlockedError
	if _, err := s.Release(t.Context(), access.Actor{Name: "ann", Role: access.Analyst},
		acts.ReleaseRequest{Rule: rules.ByHand + "-x", Subject: "user=bob", Reason: "ticket 1"}); !errors.As(err,
		&nothing) {
		t.Errorf("nobody is blocked: %v", err)
	}
	if _, err := s.Release(t.Context(), access.Actor{Name: "ann", Role: access.Viewer},
		acts.ReleaseRequest{Rule: rules.ByHand, Subject: "user=bob", Reason: "ticket 1"}); err == nil {
		t.Error("a viewer releases")
	}
}

// away is a Redis that does not answer.
type away struct{ *installation }

func (away) Ready(context.Context) error { return errors.New("it does not answer") }

// An entry that is stored while Redis does not answer is done by half, which is said: entered again it lifts what it
// covers.
func TestAnEntryThatLiftsNothingYetSaysSo(t *testing.T) {
	t.Parallel()
	in := newInstallation(t)
	s, err := acts.New(acts.Options{
		Rules: in.Rules, Gates: in, Blocks: away{in}, Releases: in, Documents: in, Dossiers: in, Clock: now,
		Logger: slog.New(slog.DiscardHandler), Orders: in.Orders, Knows: explore.New(in.Store),
		Partitions: in.Partitions,
	})
	if err != nil {
		t.Fatal(err)
	}
	admin := access.Actor{Name: "ann", Role: access.Admin, Via: access.ViaOIDC}
	r := acts.NeverRequest{Entries: []string{"203.0.113.0/24"}, Reason: "the office"}
	var unfinished *acts.UnfinishedError
	if done, err := s.ChangeNeverBlock(t.Context(), admin, r); !errors.As(err, &unfinished) || done.Unknown == "" {
		t.Errorf("%+v, %v", done, err)
	}
	if list, err := blocker(t, in).NeverBlockList(t.Context(), admin); err != nil || !slices.ContainsFunc(list,
		func(n acts.NeverListed) bool { return n.Prefix.String() == r.Entries[0] }) {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if done, err := blocker(t, in).ChangeNeverBlock(t.Context(), admin, r); err != nil || done.Unknown != "" {
		t.Errorf("entered again: %+v, %v", done, err)
	}
}
