package adversary

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// judge compares what the APIs served with what weir held and counted.
type judge struct {
	t          *testing.T
	sent       []request
	gateways   []*gateway
	languages  []string
	match      *rules.Match
	identifier *traffic.Identifier
	seen       map[int][]record            // by number: what the APIs saw
	served     map[int][]record            // by number: the watched operation, served
	events     map[int][]*event            // by number
	dead       map[int]string              // by number: lines that are no events
	counts     []map[traffic.Subject]int64 // by gateway: counted events of each subject of the rules' keys
	sorted     []string                    // by gateway: the lines of its log that are events, by their time
	findings   map[string]int
	shown      map[string]int
	strayed    int // checks that an API has seen
}

// event is one line of an access log, as ROUTE reads it.
type event struct {
	identity traffic.Identity
	path     string
	method   string
	status   int
	refused  bool
	matched  bool
}

func (e *event) String() string {
	return fmt.Sprintf("%s %q %d of %s, user %q, session %q, device %q; refused: %t, watched: %t",
		e.method, e.path, e.status, e.identity.IP, e.identity.User, e.identity.Session, e.identity.Device, e.refused, e.matched)
}

func newJudge(t *testing.T, sent []request, gateways []*gateway, languages []string) *judge {
	t.Helper()
	j := &judge{
		t: t, sent: sent, gateways: gateways, languages: languages, match: &rules.Match{Methods: []string{"POST"}, Path: operation},
		seen: map[int][]record{}, served: map[int][]record{}, events: map[int][]*event{}, dead: map[int]string{}, findings: map[string]int{}, shown: map[string]int{},
	}
	identities := traffic.DefaultIdentityMap()
	if err := json.Unmarshal([]byte(identityMap), &identities); err != nil {
		t.Fatal(err)
	}
	identifier, err := identities.Compile()
	if err != nil {
		t.Fatal(err)
	}
	j.identifier = identifier
	return j
}

// finding tells of one request for which weir was wrong; of each kind the first are shown.
func (j *judge) finding(kind string, number int, format string, details ...any) {
	j.t.Helper()
	j.findings[kind]++
	const most = 12
	if j.shown[kind]++; j.shown[kind] > most {
		return
	}
	who := "nobody"
	text := ""
	if number >= 0 && number < len(j.sent) {
		r := &j.sent[number]
		who = fmt.Sprintf("%s (%s) through %s to %s", r.client.name, r.client.ip, j.gateways[r.gateway].name, j.languages[r.api])
		text = r.text[:min(len(r.text), 500)]
	}
	j.t.Errorf("%s: %s\n  request %d of %s:\n  %q", kind, fmt.Sprintf(format, details...), number, who, text)
}

func numberOf(agent string) int {
	found := regexp.MustCompile(`request-(\d+)`).FindStringSubmatch(agent)
	if found == nil {
		return -1
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		return -1
	}
	return n
}

// readServed reads what an API has served as the watched operation.
func (j *judge) readServed(api int, path string) {
	j.t.Helper()
	file, err := os.Open(path)
	if err != nil {
		j.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines, watched := 0, 0
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 4<<20)
	for scanner.Scan() {
		var r record
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			j.t.Fatalf("%s: %v in %s", path, err, scanner.Text())
		}
		lines++
		r.Served = slices.DeleteFunc(r.Served, func(reading string) bool { return strings.HasSuffix(reading, anyCase) })
		number := -1
		if len(r.Agent) > 0 {
			number = numberOf(r.Agent[0])
		}
		j.seen[number] = append(j.seen[number], r)
		if len(r.Served) == 0 {
			continue
		}
		watched++
		if number < 0 || number >= len(j.sent) {
			j.finding("served without a number", number, "%+v", r)
			continue
		}
		j.served[number] = append(j.served[number], r)
	}
	if err := scanner.Err(); err != nil {
		j.t.Fatal(err)
	}
	j.t.Logf("the API in %s has seen %d requests, and served the watched operation %d times", j.languages[api], lines, watched)
	if watched < len(j.sent)/100 {
		j.t.Errorf("only %d: this says nothing", watched)
	}
}

// readLog reads an access log as the stream does, when all of it is there.
func (j *judge) readLog(gateway int) {
	j.t.Helper()
	g := j.gateways[gateway]
	wanted := map[int]bool{}
	for number := range j.served {
		if j.sent[number].gateway == gateway {
			wanted[number] = true
		}
	}
	var lines []string
	testbed.Eventually(j.t, 20*time.Second, func() error {
		lines = lines[:0]
		for _, log := range g.logs {
			text, err := os.ReadFile(log)
			if err != nil {
				return err
			}
			lines = slices.AppendSeq(lines, strings.Lines(string(text)))
		}
		missing := maps.Clone(wanted)
		for _, line := range lines {
			delete(missing, numberOf(line))
		}
		for number := range missing {
			return fmt.Errorf("the log of %s lacks %d of %d served requests, number %d among them: %q", g.name, len(missing), len(wanted), number, j.sent[number].text)
		}
		return nil
	})
	decoder, err := format.NewDecoder(g.format, nil, 1<<20)
	if err != nil {
		j.t.Fatal(err)
	}
	index := rules.NewIndex([]rules.Version{{Document: rules.Document{ID: "r", Match: *j.match}}})
	held, counted := 0, 0
	subjects := map[traffic.Subject]int64{}
	type timed struct {
		at   traffic.Time
		line string
	}
	var inOrder []timed
	for _, line := range lines {
		var r traffic.Request
		if err := decoder.Decode([]byte(line), &r); err != nil {
			j.dead[numberOf(line)] = fmt.Sprintf("%v: %s", err, line)
			continue
		}
		inOrder = append(inOrder, timed{r.Time, line})
		number := numberOf(r.UserAgent)
		id, _ := j.identifier.FromEvent(&r)
		e := &event{
			identity: id, path: strings.Clone(r.Path), method: r.Method, status: int(r.Status), refused: r.Verdict.Refused(),
			matched: len(index.Match(nil, &rules.Target{Method: r.Method, Path: r.Path})) > 0,
		}
		j.events[number] = append(j.events[number], e)
		switch {
		case e.refused:
			held++
		case e.matched:
			counted++
			for _, key := range ruleKeys() {
				if s, missing := traffic.MakeSubject(&id, key); missing == 0 {
					subjects[s]++
				}
			}
		}
	}
	j.counts = append(j.counts, subjects)
	slices.SortStableFunc(inOrder, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	var text strings.Builder
	for _, l := range inOrder {
		text.WriteString(l.line)
	}
	j.sorted = append(j.sorted, text.String())
	j.t.Logf("%s has logged %d requests, of which weir held %d and counts %d", g.name, len(lines), held, counted)
	if held < len(j.sent)/50 || counted < len(j.sent)/50 {
		j.t.Errorf("only %d held and %d counted: this says nothing", held, counted)
	}
}

func ruleKeys() [][]traffic.KeyField {
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	return [][]traffic.KeyField{{ip}, {{Field: traffic.FieldUser}}, {{Field: traffic.FieldSession}}, {ip, {Field: traffic.FieldDevice}}}
}

func (j *judge) judge() {
	j.t.Helper()
	for number := range j.sent {
		for i := range j.served[number] {
			j.judgeServed(number, &j.served[number][i])
		}
	}
	for number := -1; number < len(j.sent); number++ {
		for i := range j.events[number] {
			j.judgeEvent(number, j.events[number][i])
		}
	}
	for number := range j.sent {
		if r := &j.sent[number]; r.plain && r.client.blocked == "" && len(j.served[number]) == 0 && !j.afterOdd(number) && !j.astray(number) {
			j.finding("a plain request was not served", number, "the log says %v, the API has seen %+v", j.events[number], j.seen[number])
		}
	}
	if most := max(2, len(j.sent)/500); j.strayed > most {
		j.t.Errorf("%d checks have gone to an API, which is more than Caddy's race explains: at most %d", j.strayed, most)
	}
	j.t.Logf("findings: %v; checks that went to an API: %d", j.findings, j.strayed)
}

// astray reports whether Caddy has sent the check of a request to the API, as docs/gateways/caddy.md says of its older
// versions. That the request has not passed then is right.
func (j *judge) astray(number int) bool {
	if j.gateways[j.sent[number].gateway].format != format.Caddy ||
		!slices.ContainsFunc(j.seen[number], func(r record) bool { return r.Target == "/v1/forward-auth" }) {
		return false
	}
	j.strayed++
	return true
}

// afterOdd reports whether a request followed another one on its connection, which may have ended that.
func (j *judge) afterOdd(number int) bool {
	return number > 0 && strings.Contains(j.sent[number-1].text, "Connection: keep-alive")
}

// judgeServed looks at a request that was served as the watched operation.
func (j *judge) judgeServed(number int, r *record) {
	j.t.Helper()
	s := &j.sent[number]
	user := slices.Contains(r.User, s.client.user) && s.client.user != ""
	session := s.session != "" && strings.Contains(strings.Join(r.Cookie, ";"), s.session)
	by := some(r.Served)
	switch s.client.blocked {
	case "user":
		if user {
			j.finding("a blocked client was served", number, "as %q, by %s", r.Target, by)
		}
	case "session":
		if session {
			j.finding("a blocked client was served", number, "as %q, by %s", r.Target, by)
		}
	case "":
	case "ip and device":
		if s.device != "" {
			j.finding("a blocked client was served", number, "as %q, by %s", r.Target, by)
		}
	default:
		j.finding("a blocked client was served", number, "as %q, by %s", r.Target, by)
	}
	events := j.events[number]
	if len(events) == 0 {
		j.finding("a served request is in no event", number, "as %q, by %s: %s", r.Target, by, j.dead[number])
		return
	}
	e := events[0]
	if !e.matched || e.refused {
		j.finding("a served request is counted by no rule", number, "as %q, by %s; its event is %s %q %d", r.Target, by, e.method, e.path, e.status)
	}
	if e.identity.IP != s.client.ip {
		j.finding("counted under a wrong address", number, "%s, not %s", e.identity.IP, s.client.ip)
	}
	if user && e.identity.User != s.client.user {
		j.finding("counted under a wrong user", number, "%q, not %q", e.identity.User, s.client.user)
	}
	if session && e.identity.Session != s.session {
		j.finding("counted under a wrong session", number, "%q, not %q", e.identity.Session, s.session)
	}
	// A repeated header is missing, but nginx tells only the first of its lines, at both ends; from 1.23 on all, as one.
	untold := s.repeated && j.gateways[s.gateway].format == format.Nginx
	if e.identity.Device != s.device && !untold {
		j.finding("counted under a wrong device", number, "%q, not %q", e.identity.Device, s.device)
	}
}

// judgeEvent looks at what weir makes of a line of a log, whether or not anything was served.
func (j *judge) judgeEvent(number int, e *event) {
	j.t.Helper()
	var victim, free bool
	if number >= 0 && number < len(j.sent) {
		c := j.sent[number].client
		victim, free = c.victim, c.blocked == ""
	}
	if e.refused && free {
		j.finding("a client that nothing blocks was held", number, "its event is %s", e)
	}
	if id := &e.identity; e.matched && !e.refused && !victim && (id.IP.String() == victimAddress || id.User == victimUser || id.Session == victimSession) {
		j.finding("counted for the victim", number, "its event is %s", e)
	}
}

// replay lets weir itself read the logs, and compares what it finds with what was counted here.
func (j *judge) replay() {
	j.t.Helper()
	w := testbed.NewWorkplace(j.t)
	w.Write("weir.yaml", fmt.Sprintf("namespace: %s\nkafka:\n  brokers: [%s]\n  partitions: {requests: 1, keyed: 2, hits: 1}\npostgres: {url: %q}\nidentity: %s\n",
		testbed.Namespace(j.t), strings.Join(testbed.Kafka(j.t), ", "), testbed.Postgres(j.t), identityMap))
	w.Weir("migrate")
	rules := w.Write("rules.yaml", ruleDocuments())
	for i, g := range j.gateways {
		log := w.Write(g.name+".log", j.sorted[i])
		w.Weir("ingest", log, "--format", g.format, "--replay", g.name, "--rules", rules)
		var hits []struct {
			Subject traffic.Subject `json:"subject"`
			Count   int64           `json:"count"`
		}
		out := w.Weir("history", "hits", "--replay", g.name, "--limit", "0", "--output", "json")
		if err := json.Unmarshal([]byte(out), &hits); err != nil {
			j.t.Fatalf("weir history hits: %v in %s", err, out)
		}
		found := map[traffic.Subject]int64{}
		for _, h := range hits {
			found[h.Subject] += h.Count
		}
		want := map[traffic.Subject]int64{}
		for subject, counted := range j.counts[i] {
			if counted > ruleLimit {
				want[subject] = counted - ruleLimit
			}
		}
		if len(want) == 0 {
			j.t.Errorf("nobody is over the limit in the log of %s: this says nothing", g.name)
		}
		if !maps.Equal(found, want) {
			j.t.Errorf("weir finds in the log of %s\n%v\nwant\n%v", g.name, found, want)
		}
	}
}
