package ruletry

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/rules/condition"
)

// explainOne explains one event of weir's own format to a rule, as a table without its borders: a row a line, cells apart by two
// spaces.
func explainOne(t *testing.T, rule, members string) (table string, one explained) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string]string{"rule.yaml": rule})
	args := []string{"explain", "r", "-f", filepath.Join(dir, "rule.yaml"), "--event", "-"}
	shown := call(t, "table", event(0, members), args...)
	var all []explained
	got := call(t, "json", event(0, members), args...)
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || got.err != nil || shown.err != nil || len(all) != 1 {
		t.Fatalf("%v, %v, %v", err, got.err, shown.err)
	}
	return shown.stdout, all[0]
}

// Each comparison of match.when is shown with the value that the event has for each field that it reads, and with what it comes to:
// of a condition of closures, and of one that needs a CEL program.
func TestExplainShowsTheClausesOfWhen(t *testing.T) {
	const rule = "id: r\nowner: a\nmatch:\n  method: GET\n  when: |\n    event.status == 404\n      && (event.attrs.tries > 3 || !has(event.attrs.ok))\n      && event.user_agent.matches(\"^curl\")\nkey: [ip]\nlimit: 9\nwindow: 1m\n"
	for _, tt := range []struct{ name, members, want string }{
		{"it does not hold", `"method":"GET","status":404,"attrs":{"tries":5},"user_agent":"okhttp\u001b[2J"`, `
  match.method  GET  GET  yes
  match.when    event.status == 404    && (event.attrs.tries > 3 || !has(event.attrs.ok))    && event.user_agent.matches("^curl")  it does not hold  no
    and  event.status == 404  status: 404  yes
    and  event.attrs.tries > 3 || !has(event.attrs.ok)  -  yes
      or  event.attrs.tries > 3  attrs.tries: 5  yes
      or  !has(event.attrs.ok)  attrs.ok: missing  yes
    and  event.user_agent.matches("^curl")  user_agent: "okhttp\x1b[2J"  no`},
		{"it cannot be judged", `"method":"GET","status":404,"attrs":{"tries":"many","ok":1},"user_agent":"curl/8` + strings.Repeat("x", 100) + `"`, `
  match.when    event.status == 404    && (event.attrs.tries > 3 || !has(event.attrs.ok))    && event.user_agent.matches("^curl")  it cannot be judged: type  fault
    and  event.status == 404  status: 404  yes
    and  event.attrs.tries > 3 || !has(event.attrs.ok)  it cannot be judged: type  fault
      or  event.attrs.tries > 3  attrs.tries: "many", it cannot be judged: type  fault
      or  !has(event.attrs.ok)  attrs.ok: 1  no
    and  event.user_agent.matches("^curl")  user_agent: "curl/8` + strings.Repeat("x", 54) + `"… (cut)  yes`},
		{"not asked", `"method":"POST","status":404`, `
  match.method  GET  POST  no
  match.when  event.status == 404    && (event.attrs.tries > 3 || !has(event.attrs.ok))    && event.user_agent.matches("^curl")  not asked, since another clause does not hold  no
  key`},
	} {
		table, one := explainOne(t, rule, tt.members)
		if got, want := unaligned(table), unaligned(tt.want); !strings.Contains(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, want)
		}
		judged := one.Clauses[1].Judged
		if (judged == nil) != (tt.name == "not asked") || judged != nil && (judged.Join != condition.JoinAnd || len(judged.Parts) != 3 || len(judged.Parts[1].Parts) != 2) {
			t.Errorf("%s: as JSON %+v", tt.name, one.Clauses[1])
		}
	}
	table, _ := explainOne(t, "id: r\nowner: a\nmatch: {when: '!(event.status == 404 || event.status == 410)'}\nkey: [ip]\nlimit: 9\nwindow: 1m\n", `"status":200`)
	const want = `
  match.when  !(event.status == 404 || event.status == 410)  it holds  yes
    not  event.status == 404 || event.status == 410  -  no
      or  event.status == 404  status: 200  no
      or  event.status == 410  status: 200  no`
	if got := unaligned(table); !strings.Contains(got, unaligned(want)) {
		t.Errorf("got\n%s", got)
	}
}

// unaligned is a table with one space between words.
func unaligned(table string) string {
	lines := strings.Split(table, "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	return strings.Join(lines, "\n")
}

// Each tier is shown in turn, passed over, taken or not to be judged, and the limit that follows. match.when says nothing of tiers.
func TestExplainShowsEachTier(t *testing.T) {
	const rule = "id: r\nowner: a\nmatch: {when: event.status > 0}\nkey: [ip]\nlimit: 9\nwindow: 1m\ntiers:\n  - {when: 'event.plan == \"partner\" && event.status < 500', limit: 500}\n  - {when: event.attrs.seats > 5, limit: 50}\n  - {when: event.attrs.staff, limit: 1}\n"
	for _, tt := range []struct {
		name, members, want string
		limit               int
	}{
		{"taken", `"status":200,"plan":"free","attrs":{"seats":6}`, `
tiers[0] event.plan == "partner" && event.status < 500 it does not hold: passed over no
and event.plan == "partner" plan: "free" no
and event.status < 500 status: 200 yes
tiers[1] event.attrs.seats > 5 it holds: taken yes
when event.attrs.seats > 5 attrs.seats: 6 yes
tiers[2] event.attrs.staff not asked, since tiers[1] holds -
tier event.attrs.seats > 5 limit 50 yes
limit 50 in 1m 1 yes`, 50},
		{"none", `"status":200`, `
tiers[1] event.attrs.seats > 5 it does not hold: passed over no
when event.attrs.seats > 5 attrs.seats: missing no
tiers[2] event.attrs.staff it does not hold: passed over no
when event.attrs.staff attrs.staff: missing no
tier the rule's own limit limit 9 yes`, 9},
		{"not to be judged", `"status":200,"attrs":{"seats":"6","staff":true}`, `
tiers[1] event.attrs.seats > 5 it cannot be judged: type fault
when event.attrs.seats > 5 attrs.seats: "6", it cannot be judged: type fault
tiers[2] event.attrs.staff it holds: taken yes
when event.attrs.staff attrs.staff: true yes
tier event.attrs.seats > 5 a tier cannot be judged (type): limit 50, the greatest that the event may have yes
limit 50 in 1m 1 yes`, 50},
	} {
		table, one := explainOne(t, rule, tt.members)
		if got := unaligned(table); !strings.Contains(got, tt.want) || !strings.Contains(got, "match.when event.status > 0 it holds yes\nwhen event.status > 0 status: 200 yes") {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, got, tt.want)
		}
		if len(one.Tiers) != 3 || one.Limit != tt.limit || one.Tiers[2].Limit != 1 || (one.Tiers[2].Judged == nil) != (tt.name == "taken") {
			t.Errorf("%s: as JSON %+v", tt.name, one)
		}
	}
}

// Where not one event can be read, the command fails, and shows why all the same.
func TestExplainFailsWhereNothingCanBeRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"rule.yaml": tokens})
	args := []string{"explain", "guest-token-flood", "-f", filepath.Join(dir, "rule.yaml"), "--event", "-"}
	if got := call(t, "table", "x\ny\n", args...); got.err == nil || got.err.Error() != "not one event could be read" || strings.Count(got.stdout, "it cannot be read: ") != 2 {
		t.Errorf("got %v\n%s", got.err, got.stdout)
	}
	if got := call(t, "table", "x\n"+event(0, `"method":"GET"`), args...); got.err != nil {
		t.Errorf("got %v\n%s", got.err, got.stdout)
	}
}
