package sessions_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/sessions"
)

func mara() sessions.Invite {
	return sessions.Invite{Name: "mara\x00", Role: "owner", Owners: []string{"identity", "b\xff"}, By: "ann"}
}

// redeem signs somebody in by a link.
func redeem(t *testing.T, s *sessions.Store, link, token string) (sessions.Session, error) {
	return s.Redeem(t.Context(), hash(link), hash(token), sessions.Hash{}, time.Hour,
		func(of sessions.Invite) (sessions.Session, audit.Entry) {
			return sessions.Session{Name: of.Name, Subject: "invited by " + of.By, Via: "invite", Role: of.Role,
				Owners: of.Owners}, entry("sign-in")
		})
}

func TestInvitationsAreUsedOnceAndInTime(t *testing.T) {
	bed := historytest.New(t)
	s := sessions.New(bed.DB)
	for link, within := range map[string]time.Duration{"good": time.Minute, "late": -time.Second} {
		until, err := s.Invite(t.Context(), hash(link), mara(), within, entry("invite"))
		if err != nil || time.Until(until) > within || until.Location() != time.UTC {
			t.Fatal(until, err)
		}
	}
	if _, err := redeem(t, s, "good", "one"); err != nil {
		t.Fatal(err)
	}
	got, err := s.Find(t.Context(), hash("one"), time.Hour)
	if err != nil || got.Name != `mara\x00` || got.Via != "invite" || got.Role != "owner" ||
		!slices.Equal(got.Owners, []string{"identity", `b\xff`}) || got.Expires.Sub(got.Created) != time.Hour {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, link := range []string{"good", "late", "never"} {
		if _, err := redeem(t, s, link, "two "+link); !errors.Is(err, postgres.ErrNotFound) {
			t.Errorf("%s: got %v", link, err)
		}
		if _, err := s.Find(t.Context(), hash("two "+link), time.Hour); !errors.Is(err, postgres.ErrNotFound) {
			t.Errorf("%s: it has signed in: %v", link, err)
		}
	}
	trail, err := bed.Audit.Of(t.Context(), "session", 0)
	if err != nil || len(trail) != 3 || trail[0].Action != "sign-in" {
		t.Errorf("audited: %+v, %v", trail, err)
	}
	if n := bed.Number(t, "SELECT count(*) FROM weir.invites WHERE token IN (sha256('good'), sha256('late')) AND expires_at > now()"); n != 0 {
		t.Errorf("%d are kept", n)
	}
	bed.Run(t, "INSERT INTO weir.invites SELECT sha256(n::text::bytea), 'a', 'viewer', '{}', 'b', now(), now() + '1 minute' FROM generate_series(1, 1000) n")
	if _, err := s.Invite(t.Context(), hash("more"), mara(), time.Minute, entry("invite")); !errors.Is(err,
		sessions.ErrTooManyInvites) {
		t.Errorf("beyond the bound: %v", err)
	}
	bed.Run(t, "UPDATE weir.invites SET expires_at = now()")
	if _, err := s.Invite(t.Context(), hash("more"), mara(), time.Minute, entry("invite")); err != nil {
		t.Errorf("when the others are over: %v", err)
	}
}

// What cannot be kept as a session leaves the invitation as it was.
func TestAnInvitationIsNotUsedUpByAFailure(t *testing.T) {
	bed := historytest.New(t)
	s := sessions.New(bed.DB)
	if _, err := s.Invite(t.Context(), hash("link"), mara(), time.Minute, entry("invite")); err != nil {
		t.Fatal(err)
	}
	bed.Run(t, "ALTER TABLE weir.audit RENAME TO gone")
	if _, err := redeem(t, s, "link", "one"); err == nil || errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("what cannot be audited: %v", err)
	}
	bed.Run(t, "ALTER TABLE weir.gone RENAME TO audit")
	if _, err := redeem(t, s, "link", "two"); err != nil {
		t.Error(err)
	}
	if n := bed.Number(t, "SELECT count(*) FROM weir.sessions"); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestOfSeveralAtOnceOneIsSignedIn(t *testing.T) {
	bed := historytest.New(t)
	s := sessions.New(bed.DB)
	if _, err := s.Invite(t.Context(), hash("link"), mara(), time.Minute, entry("invite")); err != nil {
		t.Fatal(err)
	}
	var in atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			switch _, err := redeem(t, s, "link", fmt.Sprint(i)); {
			case err == nil:
				in.Add(1)
			case !errors.Is(err, postgres.ErrNotFound):
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := bed.Number(t, "SELECT count(*) FROM weir.sessions"); n != 1 || in.Load() != 1 {
		t.Errorf("%d are in, of %d sessions", in.Load(), n)
	}
}

func TestSessionsAreListedAndEnded(t *testing.T) {
	bed := historytest.New(t)
	s := sessions.New(bed.DB)
	start := func(token, name, via string) {
		t.Helper()
		if err := s.Start(t.Context(), hash(token), sessions.Hash{}, sessions.Session{Name: name, Via: via},
			time.Hour, entry("sign-in")); err != nil {
			t.Fatal(err)
		}
	}
	start("1", "vic", "oidc")
	start("2", "mara", "token")
	start("idle", "mara", "oidc")
	start("over", "mara", "oidc")
	if _, err := s.Invite(t.Context(), hash("link"), sessions.Invite{Name: "mara", Role: "admin", By: "ann"},
		time.Minute, entry("invite")); err != nil {
		t.Fatal(err)
	}
	bed.Run(t, "UPDATE weir.sessions SET seen_at = now() - interval '61 minutes' WHERE token = sha256('idle')")
	bed.Run(t, "UPDATE weir.sessions SET expires_at = now() WHERE token = sha256('over')")
	names := func() string {
		t.Helper()
		found, err := s.List(t.Context(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, l := range found {
			if l.Invited != l.Seen.IsZero() || l.Invited != (l.By == "ann") || l.Created.IsZero() ||
				l.Expires.IsZero() {
				t.Errorf("listed: %+v", l)
			}
			all = append(all, l.Name+" "+l.Via+" "+l.ID)
		}
		return strings.Join(all, ", ")
	}
	want := fmt.Sprintf("mara token %s, mara invite %s, vic oidc %s", hash("2").ID(), hash("link").ID(), hash("1").ID())
	if got := names(); got != want {
		t.Errorf("listed: %s", got)
	}
	ended := func(which sessions.Which) string {
		t.Helper()
		found, err := s.Remove(t.Context(), which, func(l sessions.Listed) audit.Entry {
			return audit.Entry{Actor: "ann", Action: fmt.Sprintf("end %v", l.Invited), Object: "session",
				Detail: l.Name}
		})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, l := range found {
			all = append(all, l.ID)
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	for _, none := range []sessions.Which{{Name: "nobody"}, {Name: ""}, {ID: "000000000000"}, {ID: "%"}, {Name: "%"},
		{Name: "mara "}} {
		if got := ended(none); got != "" {
			t.Errorf("%+v has ended %s", none, got)
		}
	}
	if got := ended(sessions.Which{ID: hash("1").ID()}); got != hash("1").ID() {
		t.Errorf("ended %s", got)
	}
	if _, err := s.Find(t.Context(), hash("1"), time.Hour); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("who was ended is found: %v", err)
	}
	all := []string{hash("2").ID(), hash("idle").ID(), hash("over").ID(), hash("link").ID()}
	slices.Sort(all)
	if got := ended(sessions.Which{Name: "mara"}); got != strings.Join(all, " ") &&
		got != strings.Join(slices.DeleteFunc(all, func(id string) bool { return id == hash("over").ID() }), " ") {
		t.Errorf("ended %s", got)
	}
	if got := names(); got != "" {
		t.Errorf("left: %s", got)
	}
	if _, err := redeem(t, s, "link", "3"); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("a link that was taken back: %v", err)
	}
	if n := bed.Number(t, "SELECT count(*) FROM weir.audit WHERE action IN ('end true', 'end false') AND actor = 'ann'"); n < 4 {
		t.Errorf("%d ends are audited", n)
	}
}

// Who is just redeeming a link when somebody ends all that he has is signed out, too, whichever comes first.
func TestNobodySlipsThroughAnEnd(t *testing.T) {
	bed := historytest.New(t)
	s := sessions.New(bed.DB)
	for range 20 {
		if _, err := s.Invite(t.Context(), hash("link"), sessions.Invite{Name: "mara", Role: "admin", By: "ann"},
			time.Minute, entry("invite")); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		both.Go(func() {
			if _, err := redeem(t, s, "link", "one"); err != nil && !errors.Is(err, postgres.ErrNotFound) {
				t.Error(err)
			}
		})
		both.Go(func() {
			_, err := s.Remove(t.Context(), sessions.Which{Name: "mara"},
				func(sessions.Listed) audit.Entry { return entry("end-session") })
			if err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if n := bed.Number(t, "SELECT (SELECT count(*) FROM weir.sessions) + (SELECT count(*) FROM weir.invites)"); n != 0 {
			t.Fatalf("%d are left", n)
		}
	}
}
