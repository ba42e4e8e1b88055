package loadgen

import (
	"bytes"
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

var errRefused = errors.New("refused")

func TestSameSettingsMakeTheSameEvents(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSettings(rt)
		if err := s.Validate(); err != nil {
			rt.Fatal(err)
		}
		a, b := NewStream(s), NewStream(s)
		later := dawn.Add(time.Hour)
		var e, f Event
		for a.Next(&e) {
			if !b.Next(&f) || e != f {
				rt.Fatalf("%+v and %+v", e, f)
			}
			one := a.Append(nil, &e, dawn)
			other := bytes.Replace(b.Append(nil, &f, later), []byte(later.Add(f.Time).String()), []byte(dawn.Add(e.Time).String()), 1)
			if s.Format == format.Protobuf { // the time is a number there
				one, other = inJSON(rt, one, 0), inJSON(rt, b.Append(nil, &f, later), -time.Hour)
			}
			if !bytes.Equal(one, other) {
				rt.Fatalf("an hour later it is another event\n%s\n%s", one, other)
			}
		}
		if b.Next(&f) {
			rt.Fatal("the second is longer")
		}
	})
}

// inJSON is a protobuf event as a weir event, its time moved.
func inJSON(rt *rapid.T, event []byte, by time.Duration) []byte {
	decoder, err := format.NewDecoder(format.Protobuf, nil, 1<<20)
	if err != nil {
		rt.Fatal(err)
	}
	var r traffic.Request
	if err := decoder.Decode(event, &r); err != nil {
		rt.Fatal(err)
	}
	r.Time = r.Time.Add(by)
	return format.AppendEvent(nil, &r)
}

func TestEventsKeepTheirPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSettings(rt)
		decoder, err := format.NewDecoder(cmp.Or(s.Format, format.Weir), nil, 1<<20)
		if err != nil {
			rt.Fatal(err)
		}
		identities := traffic.DefaultIdentityMap()
		identities.IP.TrustedProxies.Hops = s.Proxies
		identifier, err := identities.Compile()
		if err != nil {
			rt.Fatal(err)
		}
		st, before, ids := NewStream(s), time.Duration(0), map[string]bool{}
		all := allEvents(s)
		for i := range all {
			e := &all[i]
			if e.Sent < before || e.Sent >= s.Duration || e.Time > e.Sent || e.Time < e.Sent-s.Disorder {
				rt.Fatalf("sent at %s with time %s, after one at %s", e.Sent, e.Time, before)
			}
			before = e.Sent
			if ids[e.ID] {
				rt.Fatalf("%s twice", e.ID)
			}
			ids[e.ID] = true
			if e.IP.IsPrivate() || !e.IP.IsGlobalUnicast() {
				rt.Fatalf("%s may never be blocked (docs/blocks.md)", e.IP)
			}
			var r traffic.Request
			if err := decoder.Decode(st.Append(nil, e, dawn), &r); err != nil || r.UnknownFields > 0 {
				rt.Fatal(err)
			}
			id, _ := identifier.FromEvent(&r)
			if r.Time != dawn.Add(e.Time) || r.Method != e.Method || r.Path != e.Path || r.ID != e.ID ||
				id != (traffic.Identity{IP: e.IP, Device: e.Device, User: e.User, Session: e.Session}) {
				rt.Fatalf("%+v comes out as %+v of %+v", e, r, id)
			}
		}
		if s.Events > 0 && int64(len(all)) > s.Events {
			rt.Fatalf("%d events, want %d at most", len(all), s.Events)
		}
	})
}

func TestSharesAndSkew(t *testing.T) {
	s := settings(7)
	s.Rate, s.Duration, s.Viewers, s.Abusers, s.Zipf = 1000, 30*time.Second, 500, 0, 1
	byDevice, six, out := map[string]int{}, map[netip.Addr]bool{}, map[string]bool{}
	clients := map[string]bool{}
	posts := 0
	all := allEvents(s)
	for _, e := range all {
		byDevice[e.Device]++
		clients[e.Device] = true
		if e.IP.Is6() {
			six[e.IP] = true
		}
		if e.User == "" {
			out[e.Device] = true
		}
		if e.Method == "POST" {
			posts++
		}
	}
	about := func(what string, got, want float64) {
		if got < 0.8*want || got > 1.2*want {
			t.Errorf("%s: got %.3f, want about %.3f", what, got, want)
		}
	}
	n := float64(len(all))
	about("events", n, 30_000)
	about("IPv6", float64(len(six))/float64(len(clients)), s.IPv6)
	about("signed out", float64(len(out))/float64(len(clients)), s.SignedOut)
	about("weight of POST", float64(posts)/n, 0.25)
	harmonic := 0.0
	for k := 1; k <= s.Viewers; k++ {
		harmonic += 1 / float64(k)
	}
	about("the first viewer's share", float64(byDevice["load-7-d0"])/n, 1/harmonic)
	about("the tenth viewer's share", float64(byDevice["load-7-d9"])/n, 0.1/harmonic)
}

func TestPatterns(t *testing.T) {
	for _, tc := range []struct {
		pattern   Pattern
		events    float64 // in two minutes at 4 a second
		addresses int
		silence   time.Duration // the longest, about
	}{
		{Burst, 4 * 4 * 5 * 6, 1, 15 * time.Second},
		{Steady, 4 * 120, 1, 0},
		{Rotate, 4 * 120, 480, 0},
		{Slow, 0.4 * 120, 1, 3 * time.Second},
		{Return, 4 * 20 * 2, 1, 40 * time.Second},
	} {
		t.Run(string(tc.pattern), func(t *testing.T) {
			s := settings(3)
			s.Duration, s.Abusers, s.AbuseRate, s.Patterns = 2*time.Minute, 1, 4, []Pattern{tc.pattern}
			addresses, nets := map[netip.Addr]bool{}, map[netip.Prefix]bool{}
			var times []time.Duration
			for _, e := range allEvents(s) {
				if e.Device == "load-3-d50" { // the first after all viewers
					times = append(times, e.Sent)
					addresses[e.IP] = true
					nets[netip.PrefixFrom(e.IP, 64).Masked()] = e.IP.Is6()
				}
			}
			silence := time.Duration(0)
			for i := 1; i < len(times); i++ {
				silence = max(silence, times[i]-times[i-1])
			}
			if n := float64(len(times)); n < 0.9*tc.events || n > 1.1*tc.events {
				t.Errorf("%v events, want about %v", n, tc.events)
			}
			if n := len(addresses); n != tc.addresses && (tc.pattern != Rotate || n < 400 || len(nets) != 1) {
				t.Errorf("%d addresses of %d nets, want %d", n, len(nets), tc.addresses)
			}
			if silence < tc.silence-time.Second || silence > tc.silence+2*time.Second {
				t.Errorf("silent for %s, want about %s", silence, tc.silence)
			}
			if times[0] > 2*time.Second {
				t.Errorf("begins after %s", times[0])
			}
		})
	}
}

func TestMoreAbusersLeaveViewersAlone(t *testing.T) {
	viewers := func(abusers int) (out []Event) {
		s := settings(11)
		s.Abusers = abusers
		for _, e := range allEvents(s) {
			number, err := strconv.Atoi(strings.TrimPrefix(e.Device, "load-b-d"))
			if err != nil {
				t.Fatal(err)
			}
			if number < s.Viewers {
				e.Number, e.ID = 0, ""
				out = append(out, e)
			}
		}
		return out
	}
	few, many := viewers(2), viewers(40)
	if len(few) < 1000 || !slices.Equal(few, many) {
		t.Errorf("%d and %d requests of viewers, not the same", len(few), len(many))
	}
}

func TestSettingsSayWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		change func(*Settings)
		want   string
	}{
		{func(s *Settings) { s.Rate = 0 }, "--rate: got 0; allowed: 0.001 to 1000000"},
		{func(s *Settings) { s.Duration = 48 * time.Hour }, "--duration: got 2d; allowed: 1s to 1d"},
		{func(s *Settings) { s.Events = MaxEvents + 1 }, "--events: got 10000001; allowed: 0 to 10000000"},
		{func(s *Settings) { s.Viewers = 0 }, "--viewers: got 0; allowed: 1 to 1000000"},
		{func(s *Settings) { s.IPv6 = 1.5 }, "--ipv6: got 1.5; allowed: 0 to 1"},
		{func(s *Settings) { s.Patterns = []Pattern{"stead"} }, `--patterns: got "stead"; allowed: some of [burst steady rotate slow return]`},
		{func(s *Settings) { s.Patterns = nil }, "--patterns: got none"},
		{func(s *Settings) { s.Mix = nil }, "--mix: got 0 kinds of request"},
		{func(s *Settings) { s.Abuse.Path = "/a?b=c" }, `--abuse: path: got "/a?b=c"`},
		{func(s *Settings) { s.Disorder = -time.Second }, "--disorder: got -1s; allowed: 0s to 1h"},
	} {
		s := settings(1)
		tc.change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q in it", err, tc.want)
		}
	}
}

func TestParseCall(t *testing.T) {
	for text, want := range map[string]Call{
		"GET /a": {"GET", "/a", 1}, "POST /a/b=12": {"POST", "/a/b", 12}, "GET /x=y=3": {"GET", "/x=y", 3},
		"GET": {}, "get /a": {}, "GET /a=": {}, "GET /a=0": {}, "GET /a=03": {}, "GET /a b": {}, "GET /a?x": {}, "": {},
	} {
		got, err := ParseCall(text)
		if (err == nil) != (want.Weight > 0) || err == nil && got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	s := settings(1)
	s.Rate, s.Duration, s.Viewers, s.Abusers = MaxRate, MaxDuration, 100_000, 100
	st := NewStream(s)
	var e Event
	var json []byte
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if !st.Next(&e) {
			b.Fatal("the load is over")
		}
		json = st.Append(json[:0], &e, dawn)
		n += len(json)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	if n < 200*b.N {
		b.Fatalf("%d bytes of %d events", n, b.N)
	}
}
