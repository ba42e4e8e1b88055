package backtest

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/traffic"
)

// Events on which a condition could not be judged are told, by rule and fault: as many as were in time, whether or not the log is
// sorted, and of a sweep under each value.
func TestWhatConditionsFailOnIsTold(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	for i, attrs := range []string{`{"n":"x"}`, `{"n":5}`, `{"n":{}}`, `{}`, `{"n":7,"seats":"many"}`, `{"n":8,"seats":0}`, `{"n":"late"}`} {
		line := lineOf(begin.Add(time.Duration(i)*time.Second), "192.0.2.1", "", "", "/")
		log.WriteString(strings.TrimSuffix(line, "}\n") + `,"attrs":` + attrs + "}\n")
	}
	o := Options{
		Format: "weir", Identity: traffic.DefaultIdentityMap(), Until: traffic.At(begin.Add(6 * time.Second)),
		Rules: parseRules(t, "id: big\nowner: tests\nmatch: {when: event.attrs.n > 3}\nkey: [ip]\nlimit: 9\nwindow: 1m\ntiers: [{when: 10 / int(event.attrs.seats) > 1, limit: 20}]\n",
			"id: plain\nowner: tests\nmatch: {}\nkey: [ip]\nlimit: 9\nwindow: 1m\n"),
	}
	want := route.Unjudged{When: map[string]int64{"type": 2}, Tiers: map[string]int64{"value": 2}}
	for name, change := range map[string]func(*Options){
		"in order": func(*Options) {}, "sorted": func(o *Options) { o.Reorder = time.Minute },
		"swept": func(o *Options) { o.Sweep = Sweep{Field: SweepLimit, Limits: []int{1, 2}} },
	} {
		tried := o
		change(&tried)
		got := run1(t, tried, inMemory("log", log.Bytes()))
		for _, r := range got.Rules {
			unjudged := route.Unjudged{}
			if r.Rule == "big" {
				unjudged = want
			}
			if !reflect.DeepEqual(r.Unjudged, unjudged) || r.Matched != map[string]int64{"big": 3, "plain": 6}[r.Rule] {
				t.Errorf("%s, %s %s: got %+v of %d", name, r.Rule, r.Swept, r.Unjudged, r.Matched)
			}
		}
	}
}
