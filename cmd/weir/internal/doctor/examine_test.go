package doctor

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// TestDoctorWarnsOfCountedProxies: where proxies are counted, who comes past them is whoever it claims to be.
func TestDoctorWarnsOfCountedProxies(t *testing.T) {
	for value, want := range map[string]Status{"0": OK, "1": Warn, "10.0.0.0/8": OK} {
		e := examined(t, rules.ModeShadow)
		if err := e.routing.Identity.IP.TrustedProxies.UnmarshalText([]byte(value)); err != nil {
			t.Fatal(err)
		}
		found := e.lookAtIdentities(t.Context())
		f := found[len(found)-1]
		if f.Check != "trusted proxies" || f.Status != want || (want == Warn) != strings.Contains(f.Remedy, "identity.ip.trusted_proxies: [") {
			t.Errorf("%s: %+v", value, f)
		}
	}
}

// TestDoctorTellsOfClaimedMembers: a field that nothing but a client's claim is left for says so.
func TestDoctorTellsOfClaimedMembers(t *testing.T) {
	e := examined(t, rules.ModeShadow)
	e.routing.RecordFormat = rules.ReadingRecordFormat
	e.routing.Format.Name, e.routing.Identity.Device.Vouched = format.Nginx, true
	var messages []traffic.Message
	for _, line := range repeat(12, `{"remote_addr":"198.51.100.7","device":"tv","request_method":"POST","request_uri":"/v1/guest-tokens","status":"201"}`) {
		messages = append(messages, traffic.Message{Value: []byte(line), Appended: now()})
	}
	for _, f := range e.judgeSample(messages) {
		if f.Check == "identity device" && f.Status == Fail && strings.Contains(f.Found, "claimed 12") {
			return
		}
	}
	t.Errorf("nothing of it in %+v", e.judgeSample(messages))
}

// A round ends in its part of the run's time, or with the run. A check that comes back by then has its findings, and whatever one that hangs would
// do, nobody waits for it.
func TestRoundsEndInTime(t *testing.T) {
	for _, tc := range []struct {
		name    string
		timeout time.Duration // of the run; 0: none
		stopped time.Duration // when a signal comes; 0: never
		slow    time.Duration // what a check takes that looks at its context
		found   Status        // of that check
		took    time.Duration
	}{
		{"the default", 20 * time.Second, 0, 5 * time.Second, OK, 6*time.Second + sayingTime},
		{"too slow for it", 20 * time.Second, 0, 7 * time.Second, Warn, 6*time.Second + sayingTime},
		{"with more time", time.Minute, 0, 15 * time.Second, OK, 18*time.Second + sayingTime},
		{"with less", 1500 * time.Millisecond, 0, 5 * time.Second, Warn, 1500*time.Millisecond + sayingTime},
		{"stopped", time.Hour, 200 * time.Millisecond, time.Second, Warn, 200*time.Millisecond + sayingTime},
		{"without an end", 0, 0, 5 * time.Second, OK, 6*time.Second + sayingTime},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if tc.timeout > 0 {
					ctx, stop = context.WithTimeout(ctx, tc.timeout)
					defer stop()
				}
				if tc.stopped > 0 {
					time.AfterFunc(tc.stopped, stop)
				}
				hung := make(chan struct{})
				defer close(hung)
				slow := func(ctx context.Context) []Finding {
					select {
					case <-time.After(tc.slow): // the clock of the synctest bubble
						return []Finding{fine("slow", "well")}
					case <-ctx.Done():
						return []Finding{warning("slow", "wait", "cut short")}
					}
				}
				hangs := func(context.Context) []Finding { <-hung; return nil }
				never := func(context.Context) []Finding { return []Finding{fine("never", "looked at")} }
				begun := time.Now()
				found := inRounds(ctx, [][]doctorCheck{{{"slow", slow}, {"hangs", hangs}}, {{"never", never}}})
				if took := time.Since(begun); took != tc.took {
					t.Errorf("took %s, want %s", took, tc.took)
				}
				if len(found) != 2 || found[0].Status != tc.found || found[1].Status != Fail || found[1].Check != "hangs" || !strings.Contains(found[1].Remedy, "--timeout") {
					t.Errorf("%+v", found)
				}
			})
		})
	}
}

// What is left of a run's time is for the rounds that come.
func TestRoundsComeToTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		slow := func(context.Context) []Finding {
			<-time.After(17 * time.Second)
			return []Finding{fine("slow", "well")}
		}
		found := inRounds(ctx, [][]doctorCheck{{{"a", slow}}, {{"b", slow}, {"c", slow}}, {{"d", slow}}})
		if len(found) != 4 || found[3].Status != OK {
			t.Errorf("%+v", found)
		}
		time.Sleep(time.Minute) // let those that were not waited for end
	})
}
