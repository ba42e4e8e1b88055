package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// attemptRule counts what tokenRule does, and stays in shadow.
var attemptRule = strings.Replace(tokenRule, "id: tokens", "id: attempts", 1)

// sumKey is what refused requests are told apart by.
type sumKey struct{ rule, source, minute string }

// gateway is a gateway that logs what it lets pass and what it refuses, and keeps a ledger of both that nothing of
// weir's has a part in.
type gateway struct {
	*bed
	address string
	held    map[string]string // source → block that it was told last
	refused map[sumKey]int64
	good    int64                  // of those refused, from a source that pays
	passed  map[string][]time.Time // by source
}

const (
	payer, taker = "198.51.100.7", "198.51.100.8"
	// tokenLimit is that of both rules: one more opens the episode, and a block would refuse what follows.
	tokenLimit = 3
)

// request asks the gate, and logs what became of it.
func (g *gateway) request(ip string) (refused bool) {
	g.t.Helper()
	at, answer := time.Now().UTC(), check(g.t, g.address, ip)
	plan := map[string]string{payer: "paid", taker: "free"}[ip]
	if answer.status == http.StatusTooManyRequests { // as a gateway logs whose log comes late: in minutes of their own
		at = at.Add(-time.Duration(g.total()%3) * time.Minute)
	}
	line := fmt.Sprintf(`{"v":1,"time":%q,"ip":%q,"plan":%q,"method":"POST","path":"/v1/guest-tokens","status":201`,
		at.Format(time.RFC3339Nano), ip, plan)
	switch answer.status {
	case http.StatusOK:
		g.passed[ip] = append(g.passed[ip], at)
	case http.StatusTooManyRequests:
		rule, block := answer.header.Get(gate.HeaderRule), answer.header.Get(gate.HeaderBlock)
		line = strings.Replace(line, "201", "429", 1) + fmt.Sprintf(`,"verdict":{"rule":%q,"block":%q}`, rule, block)
		g.held[ip] = block
		g.refused[sumKey{rule, ip, at.Truncate(time.Minute).Format("2006-01-02T15:04Z")}]++
		if refused = true; plan == "paid" {
			g.good++
		}
	default:
		g.t.Fatalf("the gate answers %d", answer.status)
	}
	g.sendAll(line + "}\n")
	return refused
}

// until sends requests of a source until one is refused, or passes.
func (g *gateway) until(ip string, refused bool) {
	g.t.Helper()
	testbed.Eventually(g.t, 60*time.Second, func() error {
		if g.request(ip) != refused {
			return fmt.Errorf("the gate has refused %s: %t", ip, !refused)
		}
		return nil
	})
}

// real is what gates refused, of the sums that pick names.
func (g *gateway) real(pick func(sumKey) string) map[string]int64 {
	out := map[string]int64{}
	for k, n := range g.refused {
		out[pick(k)] += n
	}
	return out
}

func (g *gateway) total() (n int64) {
	for _, v := range g.refused {
		n += v
	}
	return n
}

// would is what the block of either rule would have refused of a source, alone: whatever passed after it was over.
func (g *gateway) would(ip string) int64 { return int64(len(g.passed[ip]) - tokenLimit - 1) }

// TestNoFigureMixesRealAndWouldBe: a rule is promoted and demoted in the middle of an attack. Every place that tells of
// refused requests has those that the gate refused, by rule, source and minute, and every place that tells of what
// would have been refused has those that passed; no figure is of both.
func TestNoFigureMixesRealAndWouldBe(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.flags = append(b.flags, "--set", `known_good=event.plan == "paid"`, "--set", "console.masking.below=analyst",
		"--set", "console.masking.secret="+strings.Repeat("k", 32))
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", tokenRule+"---\n"+attemptRule))
	b.start("run")
	door := b.start("gate", "--listen", "127.0.0.1:0")
	web := b.start("console", "--console-listen", "127.0.0.1:0", "--set", consoleTokens()+","+token("vera", "viewer",
		""))
	server := "http://" + web.awaitLog(`serving the console" address=(\S+)`)
	g := &gateway{bed: b, address: door.awaitLog(`forward-auth checks" address=(\S+)`), held: map[string]string{},
		refused: map[sumKey]int64{}, passed: map[string][]time.Time{}}

	for range 8 { // in shadow
		if g.request(payer) || g.request(taker) {
			t.Fatal("a rule in shadow refuses")
		}
	}
	awaitHits(b, payer, 1)
	awaitHits(b, taker, 1)
	b.ok("rules", "promote", "tokens", "--reason", "test", "--yes", "--override", "tests")
	for _, ip := range []string{payer, taker} {
		g.until(ip, true)
	}
	for range 9 {
		if !g.request(payer) || !g.request(taker) {
			t.Error("a block has let pass")
		}
	}
	first := g.held[payer] // its hit was opened in shadow
	b.ok("blocks", "release", "tokens", "ip="+payer, "--reason", "it pays")
	b.ok("rules", "demote", "tokens", "--reason", "test")
	g.until(taker, false)
	for range 3 {
		g.request(taker)
	}
	if g.total() < 20 || g.would(taker) < 5 || g.would(payer) < 4 {
		t.Fatalf("%d refused, %v passed: the test proves nothing", g.total(), g.passed)
	}
	g.settle()

	t.Run("rows", func(t *testing.T) { g.on(t).compareRows(server) })
	t.Run("sums", func(t *testing.T) { g.on(t).compareSums(server) })
	t.Run("pages", func(t *testing.T) { g.on(t).comparePages(server, first) })
	t.Run("false positives", func(t *testing.T) { g.on(t).compareWrongly(server) })
	t.Run("pseudonyms", func(t *testing.T) { g.on(t).comparePseudonyms(server, first) })
}

// on is the gateway in a part of the test.
func (g *gateway) on(t *testing.T) *gateway {
	part := *g
	part.bed = &bed{t: t, flags: g.flags}
	return &part
}

// settle waits until all is told: sums of a minute come when it is over.
func (g *gateway) settle() {
	g.t.Helper()
	testbed.Eventually(g.t, 3*time.Minute, func() error {
		var refused, would int64
		g.row(`SELECT (SELECT coalesce(sum(events), 0) FROM {ns}.refusals_v), (SELECT coalesce(sum(refused), 0) FROM {ns}.rule_minutes_v WHERE kind = 'hit')`, &refused, &would)
		if want := 2 * (g.would(payer) + g.would(taker)); refused != g.total() || would != want {
			return fmt.Errorf("history has %d refused and %d that would have been, want %d and %d", refused, would,
				g.total(), want)
		}
		return nil
	})
}

func (g *gateway) row(sql string, into ...any) {
	g.t.Helper()
	conn, err := pgx.Connect(g.t.Context(), g.flag("--postgres-url"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if err := conn.QueryRow(g.t.Context(), strings.ReplaceAll(sql, "{ns}",
		g.flag("--namespace"))).Scan(into...); err != nil {
		g.t.Fatal(err)
	}
}

// get reads what a server answers to somebody.
func (g *gateway) get(server, who, path string) string {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, server+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret-of-"+who)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		g.t.Fatalf("%s: %d %v\n%s", path, answer.StatusCode, err, body)
	}
	return string(body)
}

// table are the rows of a CSV by the names of their columns.
func (g *gateway) table(text string) (rows []map[string]string) {
	g.t.Helper()
	all, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(all) == 0 {
		g.t.Fatalf("%v in %q", err, text)
	}
	for _, cells := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = cells[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// objects are rows of JSON, with all values as texts.
func (g *gateway) objects(text string) (rows []map[string]string) {
	g.t.Helper()
	var all []map[string]any
	var page struct {
		Items []map[string]any `json:"items"`
		Rows  []map[string]any `json:"rows"`
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			g.t.Fatalf("%v in %q", err, text)
		}
		all = append(page.Items, page.Rows...)
	}
	for _, one := range all {
		row := map[string]string{}
		for name, value := range one {
			if number, ok := value.(float64); ok {
				value = strconv.FormatFloat(number, 'f', -1, 64)
			}
			row[name] = fmt.Sprint(value)
		}
		rows = append(rows, row)
	}
	return rows
}

func cell(row map[string]string, names ...string) string {
	for _, name := range names {
		if v, ok := row[name]; ok {
			return v
		}
	}
	return ""
}

// addressIn is the address of a subject in any of its spellings.
func addressIn(text string) string {
	text = regexp.MustCompile(`198\.51\.100\.[0-9]+`).FindString(text)
	return text
}

func minuteOf(text string) string {
	at, err := time.Parse(time.RFC3339, strings.Replace(text, " UTC", "Z", 1))
	for _, layout := range []string{"2006-01-02 15:04:05Z", "2006-01-02 15:04Z"} {
		if err != nil {
			at, err = time.Parse(layout, strings.Replace(text, " UTC", "Z", 1))
		}
	}
	return at.UTC().Truncate(time.Minute).Format("2006-01-02T15:04Z")
}

// compareRows asks every place that lists sums by rule, block and minute.
func (g *gateway) compareRows(server string) {
	anna := g.at(server, "anna")
	for place, rows := range map[string][]map[string]string{
		"weir history refused --output json": g.objects(g.ok("history", "refused", "--output", "json")),
		"weir history refused --output csv":  g.table(g.ok("history", "refused", "--output", "csv")),
		"weir history refused --server":      g.objects(anna.ok("history", "refused", "--output", "json")),
		"/api/v1/history/refused":            g.objects(g.get(server, "anna", "/api/v1/history/refused")),
		"/api/v1/history/refused?format=csv": g.table(g.get(server, "anna",
			"/api/v1/history/refused?format=csv")),
		"/api/v1/history/refused?rule=tokens&since=1h": g.objects(g.get(server, "anna",
			"/api/v1/history/refused?rule=tokens&since=1h")),
	} {
		got, good := map[sumKey]int64{}, int64(0)
		for _, row := range rows {
			n, err := strconv.ParseInt(cell(row, "events", "requests"), 10, 64)
			known, err2 := strconv.ParseInt(cell(row, "known_good", "known good"), 10, 64)
			if err != nil || err2 != nil {
				g.t.Errorf("%s: %v, %v in %v", place, err, err2, row)
			}
			got[sumKey{row["rule"], addressIn(cell(row, "subject", "source")), minuteOf(row["minute"])}] += n
			good += known
		}
		if !maps.Equal(got, g.refused) || good != g.good {
			g.t.Errorf("%s: %v with %d known good, want %v with %d", place, got, good, g.refused, g.good)
		}
	}
	var view, mixed int64
	g.row(`SELECT sum(r.events), count(*) FILTER (WHERE r.rule <> 'tokens') FROM {ns}.refusals_v r JOIN {ns}.hits_v h ON left(h.id, 16) = r.block AND h.rule = r.rule`, &view, &mixed)
	if view != g.total() || mixed != 0 {
		g.t.Errorf("refusals_v: %d, and %d rows of the rule in shadow, want %d and none", view, mixed, g.total())
	}
}

// compareSums asks every place that sums up, by everything that can be summed up by.
func (g *gateway) compareSums(server string) {
	anna := g.at(server, "anna")
	would := map[string]int64{}
	for _, rule := range []string{"tokens", "attempts"} {
		would[rule] = g.would(payer) + g.would(taker)
	}
	for by, pick := range map[string]func(sumKey) string{
		"rule": func(k sumKey) string { return k.rule }, "source": func(k sumKey) string {
			return k.rule + " " +
				k.source
		},
		"hour": func(k sumKey) string { return k.minute[:13] }, "day": func(k sumKey) string { return k.minute[:10] },
	} {
		q := "by=" + by + "&since=2d"
		places := map[string][]map[string]string{
			"weir history top --output json": g.objects(g.ok("history", "top", "--since", "2d", "--by", by, "--output",
				"json")),
			"weir history top --output csv": g.table(g.ok("history", "top", "--since", "2d", "--by", by, "--output",
				"csv")),
			"weir history top --server": g.objects(anna.ok("history", "top", "--since", "2d", "--by", by,
				"--output", "json")),
			"/api/v1/history/top":            g.objects(g.get(server, "anna", "/api/v1/history/top?"+q)),
			"/api/v1/history/top?format=csv": g.table(g.get(server, "anna", "/api/v1/history/top?format=csv&"+q)),
			"/explore.csv":                   g.table(g.get(server, "anna", "/explore.csv?"+q)),
			"/explore.json":                  g.objects(g.get(server, "anna", "/explore.json?"+q)),
			"/explore":                       g.cells(g.get(server, "anna", "/explore?"+q)),
		}
		if by == "source" {
			places["weir history sources"] = g.objects(g.ok("history", "sources", "--since", "2d", "--output", "json"))
			places["/api/v1/history/sources"] = g.objects(g.get(server, "anna", "/api/v1/history/sources?since=2d"))
		}
		for place, rows := range places {
			got, virtual := map[string]int64{}, map[string]int64{}
			for _, row := range rows {
				key := map[string]string{"rule": row["rule"], "source": row["rule"] + " " +
					addressIn(cell(row, "subject", "source")), "hour": timeOf(row, 13), "day": timeOf(row, 10)}[by]
				n, err := strconv.ParseInt(row["refused"], 10, 64)
				w, err2 := strconv.ParseInt(cell(row, "would_refuse", "would refuse"), 10, 64)
				if err != nil || err2 != nil {
					g.t.Errorf("%s by %s: %v, %v in %v", place, by, err, err2, row)
				}
				if n > 0 {
					got[key] += n
				}
				virtual[row["rule"]] += w
			}
			want := would
			if by == "hour" || by == "day" { // of both rules
				want = map[string]int64{"": would["tokens"] + would["attempts"]}
			}
			if real := g.real(pick); !maps.Equal(got, real) || !maps.Equal(virtual, want) {
				g.t.Errorf("%s by %s: refused %v and would refuse %v, want %v and %v", place, by, got, virtual, real,
					want)
			}
		}
	}
}

// timeOf is the hour or day of a row, in so many bytes.
func timeOf(row map[string]string, length int) string {
	text := strings.Replace(cell(row, "at", "hour", "day", "time"), " ", "T", 1)
	return text[:min(length, len(text))]
}

// cells are the rows of a page's table by the labels of their cells.
func (g *gateway) cells(page string) (rows []map[string]string) {
	g.t.Helper()
	_, page, _ = strings.Cut(page, "<tbody>")
	page, _, _ = strings.Cut(page, "</tbody>")
	for part := range strings.SplitSeq(page, "</tr>") {
		row := map[string]string{}
		for _, m := range regexp.MustCompile(`(?s)<td data-label="([^"]+)"[^>]*>(.*?)</td>`).FindAllStringSubmatch(part, -1) {
			row[strings.ToLower(m[1])] = strings.TrimSpace(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[2], "")))
		}
		if len(row) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// comparePages reads the pages of rules, sources and blocks, and what why says.
func (g *gateway) comparePages(server, block string) {
	const refused, would, drawn = `<dd>([0-9–]+)</dd><dt>requests refused by gates`,
		`<dd>([0-9]+)</dd><dt>requests that (?:its|the) `,
		`: ([0-9]+) refused by gates; ([0-9]+) that would have been refused`
	virtual := g.would(payer) + g.would(taker)
	figure := func(place, page, pattern string, want int64) {
		g.t.Helper()
		got := "none"
		if m := regexp.MustCompile(pattern).FindStringSubmatch(page); m != nil {
			got = m[1]
		}
		if want > 0 && got != fmt.Sprint(want) || want == 0 && got != "none" && got != "0" {
			g.t.Errorf("%s: %s says %s, want %d", place, pattern, got, want)
		}
	}
	tokens, attempts := g.get(server, "anna", "/rules/tokens"), g.get(server, "anna", "/rules/attempts")
	figure("/rules/tokens", tokens, refused, g.total())
	figure("/rules/tokens", tokens, would, virtual)
	figure("/rules/attempts", attempts, refused, 0)
	figure("/rules/attempts", attempts, would, virtual)
	bySource := g.real(func(k sumKey) string { return k.source })
	for _, ip := range []string{payer, taker} {
		page := g.get(server, "anna", "/sources?of=ip%3D"+ip)
		figure("the page of "+ip, page, refused, bySource[ip])
		figure("the page of "+ip, page, would, 2*g.would(ip))
		figure("the chart of "+ip, page, `for each [^:]*: ([0-9]+) refused by gates"`, bySource[ip])
	}
	hit := g.get(server, "anna", "/hits/"+block)
	figure("/hits/"+block, hit, refused, bySource[payer])
	figure("/hits/"+block, hit, would, g.would(payer))

	// Charts have what would have been refused in the minutes that began while the rule blocked nobody.
	quiet := g.quiet()
	for place, page := range map[string]string{"/rules/tokens": tokens, "/explore?rule=tokens": g.get(server, "anna",
		"/explore?rule=tokens")} {
		m := regexp.MustCompile(drawn).FindStringSubmatch(page)
		if m == nil || m[1] != fmt.Sprint(g.total()) || m[2] != fmt.Sprint(quiet) {
			g.t.Errorf("the chart of %s: %q, want %d and %d", place, m, g.total(), quiet)
		}
	}
	if m := regexp.MustCompile(drawn).FindStringSubmatch(attempts); m == nil || m[1] != "0" ||
		m[2] != fmt.Sprint(virtual) {
		g.t.Errorf("the chart of the rule in shadow: %q, want 0 and %d", m, virtual)
	}

	var told struct{ Refused history.RefusedTotal }
	for place, text := range map[string]string{
		"weir why": g.ok("why", block, "--output", "json"), "weir why --server": g.at(server, "anna").ok("why", block,
			"--output", "json"), "/api/v1/why": g.get(server, "anna", "/api/v1/why/"+block),
		"/api/v1/history/hits": g.get(server, "anna", "/api/v1/history/hits/"+block),
	} {
		if err := json.Unmarshal([]byte(text), &told); err != nil || told.Refused.Events != bySource[payer] ||
			told.Refused.Known != g.good || told.Refused.Blocks != 1 {
			g.t.Errorf("%s: %+v, %v, want %d requests, all known good", place, told.Refused, err, bySource[payer])
		}
	}
	if text := strings.Join(strings.Fields(g.ok("why", block)), " "); !strings.Contains(text,
		fmt.Sprintf("REFUSED %d requests by gates", bySource[payer])) {
		g.t.Errorf("weir why: %s", text)
	}
}

// quiet is how much the block of the promoted rule would have refused in minutes that began while it blocked nobody.
func (g *gateway) quiet() (n int64) {
	g.t.Helper()
	var promoted, demoted time.Time
	for _, e := range decode[[]audit.Entry](g.bed, "rules", "history", "tokens") {
		switch e.Action {
		case "promote":
			promoted = e.At
		case "demote":
			demoted = e.At
		}
	}
	for _, all := range g.passed {
		for _, at := range all[tokenLimit+1:] {
			if minute := at.Truncate(time.Minute); minute.Before(promoted) || !minute.Before(demoted) {
				n++
			}
		}
	}
	return n
}

// compareWrongly asks for false positives: one of two blocks was released, and what was known good of what was refused
// is in the ledger.
func (g *gateway) compareWrongly(server string) {
	want := history.FalsePositives{
		Released: history.Share{Some: 1, All: 2}, KnownGood: history.Share{Some: history.Figure(g.good),
			All: history.Figure(g.total())},
	}
	for place, text := range map[string]string{
		"weir rules show":          g.ok("rules", "show", "tokens", "--output", "json"),
		"weir rules show --server": g.at(server, "anna").ok("rules", "show", "tokens", "--output", "json"),
		"/api/v1/rules/tokens":     g.get(server, "anna", "/api/v1/rules/tokens"),
	} {
		var told struct {
			Wrongly history.FalsePositives `json:"false_positives_7d"`
		}
		if err := json.Unmarshal([]byte(text), &told); err != nil || told.Wrongly != want {
			g.t.Errorf("%s: %+v, %v, want %+v", place, told.Wrongly, err, want)
		}
	}
	share := fmt.Sprintf("%d of %d (%.1f %%)", g.good, g.total(), 100*float64(g.good)/float64(g.total()))
	if text := g.ok("rules", "show", "tokens"); !strings.Contains(text,
		"# false positives in the last 7 days, at least: blocks released 1 of 2 (50.0 %); refused requests known good "+share+"\n") {
		g.t.Errorf("weir rules show: %s", text)
	}
	if text := g.ok("rules", "show", "attempts"); !strings.Contains(text,
		"blocks released not known: no block was written; refused requests known good not known: gates refused nothing\n") {
		g.t.Errorf("weir rules show of the rule in shadow: %s", text)
	}
	page := g.get(server, "anna", "/rules/tokens")
	for _, want := range []string{"<dd>50.0 %</dd><dt>of its blocks were released: 1 of 2</dt>",
		share[strings.Index(share, "(")+1:strings.Index(share, ")")] +
			"</dd><dt>of what gates refused was known good</dt>"} {
		if !strings.Contains(page, want) {
			g.t.Errorf("the rule's page has no %s", want)
		}
	}
}

// comparePseudonyms asks as somebody who is shown no values: none stands anywhere, and the figures are the same.
func (g *gateway) comparePseudonyms(server, block string) {
	var sums struct{ Items []history.RefusedSum }
	if err := json.Unmarshal([]byte(g.get(server, "vera", "/api/v1/history/refused")), &sums); err != nil ||
		len(sums.Items) == 0 {
		g.t.Fatalf("%+v, %v", sums, err)
	}
	var total int64
	sources := map[traffic.Subject]bool{}
	for i := range sums.Items {
		total += sums.Items[i].Events
		sources[sums.Items[i].Subject] = true
	}
	if total != g.total() || len(sources) != 2 {
		g.t.Errorf("to who is shown pseudonyms: %d refused of %v", total, sources)
	}
	paths := []string{
		"/api/v1/history/refused", "/api/v1/history/top?by=source", "/api/v1/history/sources", "/api/v1/why/" + block,
		"/api/v1/history/hits/" + block, "/api/v1/rules/tokens",
		"/explore?by=source", "/explore?by=hour", "/rules/tokens", "/hits/" + block,
	}
	for _, s := range slices.Sorted(maps.Keys(sources)) {
		paths = append(paths, "/sources?of="+url.QueryEscape(string(s)), "/explore?by=source&source="+
			url.QueryEscape(string(s)))
	}
	for _, path := range paths {
		body := g.get(server, "vera", path)
		if strings.Contains(body, payer) || strings.Contains(body, taker) {
			g.t.Errorf("%s tells of an address", path)
		}
		if strings.HasPrefix(path, "/sources") && !strings.Contains(body, "requests refused by gates") {
			g.t.Errorf("%s tells nothing", path)
		}
	}
}
