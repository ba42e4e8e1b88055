package rules

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules/reading"
	"github.com/weirhq/weir/traffic"
)

// storyRule is the rule of examples/rules/guest-token-flood.yaml with its defaults written out.
func storyRule() Document {
	ip, device := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}, traffic.KeyField{Field: traffic.FieldDevice}
	return Document{
		ID: "guest-token-flood", Owner: "identity",
		Match: Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"},
		Key:   []traffic.KeyField{ip, device}, Missing: MissingSkip,
		Limit: 2, Window: 5 * time.Minute, Lateness: DefaultLateness, MaxLag: DefaultMaxLag,
		Block: &Block{Key: []traffic.KeyField{ip, device}, TTL: 15 * time.Minute, Extend: ExtendOnHit},
	}
}

// drawDocument makes valid documents that are often alike: few values for every field.
func drawDocument(t *rapid.T, label string) Document {
	key := rapid.Permutation([]traffic.KeyField{
		{Field: traffic.FieldIP, V4: rapid.SampledFrom([]uint8{24, 32}).Draw(t, label+" v4"), V6: 64},
		{Field: traffic.FieldDevice}, {Field: traffic.FieldSession},
	}).Draw(t, label+" key")[:rapid.IntRange(0, 3).Draw(t, label+" key fields")]
	seconds := func(name string, values ...int) time.Duration {
		return time.Duration(rapid.SampledFrom(values).Draw(t, label+" "+name)) * time.Second
	}
	d := Document{
		ID:      rapid.SampledFrom([]string{"a", "0", "null", "1e3", "x-1"}).Draw(t, label+" id"),
		Owner:   rapid.SampledFrom([]string{"ops", "42", "yes", "a: b", "# no comment", `"quoted"`, "größe", "*"}).Draw(t, label+" owner"),
		Match:   Match{Methods: drawMethods(t, label+" methods"), Path: drawPattern(t, label+" pattern")},
		Key:     key,
		Missing: rapid.SampledFrom([]OnMissing{MissingSkip, MissingGroup}).Draw(t, label+" missing"),
		Limit:   rapid.IntRange(0, 2).Draw(t, label+" limit"),
		Window:  seconds("window", 60, 90), Lateness: seconds("lateness", 0, 60), MaxLag: seconds("lag", 1, 60),
		Algorithm: rapid.SampledFrom(append(Algorithms(), "")).Draw(t, label+" algorithm"), Cooldown: seconds("cooldown", 0, 60, 61),
	}
	if d.Counting().bucket() && d.Limit > 0 {
		d.Burst = rapid.IntRange(0, 2).Draw(t, label+" burst")
	}
	d.Count = rapid.SampledFrom([]Count{{}, {Distinct: &traffic.KeyField{Field: traffic.FieldUser}}, {Sum: "attrs.a.b"}, {Sum: "attrs.a b, c: {*"}}).Draw(t, label+" count")
	if !Legal(d.Counting(), d.Count.Kind()) {
		d.Count = Count{}
	}
	if d.Match.Path != "" {
		d.Match.PathAs, d.Match.PathCase = drawReading(t)
	}
	if rapid.IntRange(0, 2).Draw(t, label+" match") == 0 {
		d.Match = drawMatch(t, label)
	}
	var blockKey []traffic.KeyField
	for _, k := range key {
		if k.Field == traffic.FieldIP || rapid.Bool().Draw(t, label+" in block key") {
			blockKey = append(blockKey, k)
		}
	}
	if len(blockKey) > 0 && rapid.Bool().Draw(t, label+" block") {
		if d.Match.Path != "" && !strings.ContainsAny(d.Match.Path[:1], `/\`) {
			d.Match.Path = "/" + d.Match.Path // a block has to be one that a request can meet
		}
		d.Block = &Block{Key: blockKey, TTL: seconds("ttl", 1, 900),
			Extend: rapid.SampledFrom([]Extend{ExtendNever, ExtendOnHit}).Draw(t, label+" extend")}
		if rapid.Bool().Draw(t, label+" block's match") {
			reach := drawMatch(t, label+" block")
			reach.Statuses = nil
			d.Block.Match = &reach
		}
	}
	if normal, _ := reading.Normal(d.Match.Path); normal != d.Match.Path {
		d.Match.PathAs = PathRaw
	}
	return d
}

// shuffled is d written in another way: methods and block key in another order, nil for empty.
func shuffled(t *rapid.T, d Document) Document {
	d.Match = shuffledMatch(t, d.Match)
	if len(d.Key) == 0 {
		d.Key = nil
	}
	if d.Block != nil {
		b := *d.Block
		b.Key = rapid.Permutation(b.Key).Draw(t, "block key order")
		if b.Match != nil {
			held := shuffledMatch(t, *b.Match)
			b.Match = &held
		}
		d.Block = &b
	}
	if rapid.Bool().Draw(t, "defaults written out") {
		d.fillCounting()
	}
	d.Count = d.Count.clone()
	return d
}

// oneFieldOf is d with one field of other.
func oneFieldOf(t *rapid.T, d, other Document) Document {
	switch rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}).Draw(t, "field") {
	case 0:
		d.ID = other.ID
	case 1:
		d.Owner = other.Owner
	case 2:
		d.Match.Methods = other.Match.Methods
	case 3:
		methods := d.Match.Methods
		d.Match = other.Match
		d.Match.Methods = methods
	case 4:
		d.Key, d.Block = other.Key, other.Block // a block's key is part of the rule's
	case 5:
		d.Missing = other.Missing
	case 6:
		if d.Burst == 0 || other.Limit > 0 {
			d.Limit = other.Limit
		}
	case 7:
		d.Window = other.Window
	case 8:
		d.Lateness = other.Lateness
	case 9:
		d.MaxLag = other.MaxLag
	case 12:
		d.Algorithm, d.Count, d.Burst = other.Algorithm, other.Count, min(other.Burst, d.Limit) // 0 with limit 0
	case 13:
		d.Cooldown = other.Cooldown
	case 10, 11:
		if d.Block != nil && other.Block != nil {
			b := *d.Block
			d.Block = &b
			if rapid.Bool().Draw(t, "ttl") {
				b.TTL = other.Block.TTL
			} else {
				b.Extend = other.Block.Extend
			}
		}
	}
	return d
}

// vouchAll accepts every block key, so that generated documents are valid.
func vouchAll() Environment {
	env := testEnvironment()
	env.Identity.Device.Vouched, env.Identity.Session.Vouched = true, true
	return env
}

// TestSameness holds all ways to compare documents to one another: canonical bytes, hash, Equal, Diff and the YAML text.
func TestSameness(t *testing.T) {
	var same, different int
	check := func(t *rapid.T) {
		a := drawDocument(t, "a")
		b := shuffled(t, a)
		kind := rapid.SampledFrom([]string{"the same", "one field", "another"}).Draw(t, "b is")
		switch kind {
		case "one field":
			b = oneFieldOf(t, b, drawDocument(t, "b"))
		case "another":
			b = drawDocument(t, "b")
		}
		for _, d := range []*Document{&a, &b} {
			if err := d.Validate(vouchAll()); err != nil {
				t.Fatalf("the generator made a bad document: %v", err)
			}
		}
		ca, errA := a.Canonical()
		cb, errB := b.Canonical()
		fa, errFA := a.Fingerprint()
		fb, errFB := b.Fingerprint()
		for _, err := range []error{errA, errB, errFA, errFB} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := string(ca) == string(cb)
		if kind == "the same" && !want {
			t.Fatalf("written in another way, and taken for another document:\n%s\n%s", ca, cb)
		}
		if a.Equal(&b) != want || (fa == fb) != want || (len(Diff(&a, &b)) == 0) != want || (a.YAML() == b.YAML()) != want {
			t.Fatalf("same bytes %v, Equal %v, hashes %s %s, diff %q, YAML\n%s\n%s", want, a.Equal(&b), fa, fb, Diff(&a, &b), a.YAML(), b.YAML())
		}
		if want {
			same++
		} else {
			different++
		}
		back, err := parse("a.yaml", []byte(a.YAML()), Environment{Identity: vouchAll().Identity})
		if err != nil || len(back) != 1 || !back[0].Equal(&a) {
			t.Fatalf("%s\nis read back as %+v, %v", a.YAML(), back, err)
		}
	}
	for range 20 { // a difference in one field is seldom drawn
		rapid.Check(t, check)
	}
	if same == 0 || different == 0 {
		t.Errorf("%d equal and %d different pairs: the test says nothing about one side", same, different)
	}
}

func TestFingerprintIsStable(t *testing.T) {
	d := storyRule()
	const want = "ad4b1d2117790b974bfaed33d526e3f249a6bc1282ff0ad87fd01b957103e497"
	if got, err := d.Fingerprint(); err != nil || got != want {
		t.Errorf("got %s, %v, want %s: stored versions would all look changed", got, err, want)
	}
	d.Key[0].Field = traffic.FieldFallback + 1
	if _, err := d.Fingerprint(); err == nil {
		t.Error("a document with an unknown field has a fingerprint")
	}
}

func TestCommentsAndOrderDoNotMatter(t *testing.T) {
	const one = "id: a\nowner: b\nmatch: {method: [POST, GET], path: /x}\nkey: [ip, device]\nlimit: 1\nwindow: 5m\nblock: {ttl: 60s, key: [device, ip]}\n"
	const two = "# why\nwindow: 300s\nblock:\n  ttl: 1m\nlimit: 1 # much\nkey: [{field: ip, v4: 32}, {field: device}]\non_missing: skip\nmatch:\n  path: '/x'\n  method: [get, post]\nowner: \"b\"\nid: a\nlateness: 1m\n"
	a, errA := parse("a.yaml", []byte(one), testEnvironment())
	b, errB := parse("b.yaml", []byte(two), testEnvironment())
	if errA != nil || errB != nil {
		t.Fatal(errA, errB)
	}
	if !a[0].Equal(&b[0]) {
		t.Errorf("differ: %q", Diff(&a[0], &b[0]))
	}
}

func TestNextVersion(t *testing.T) {
	prev, changed := NextVersion(nil, storyRule())
	if !changed || prev.Number != 1 || prev.Lineage != 1 {
		t.Fatalf("first version: got %d, lineage %d, changed %v", prev.Number, prev.Lineage, changed)
	}
	prev.Number, prev.Lineage = 7, 3
	for _, c := range []struct {
		name    string
		change  func(d *Document)
		changed bool
		lineage int
	}{
		{"nothing", func(*Document) {}, false, 3},
		{"order of block key", func(d *Document) { d.Block.Key[0], d.Block.Key[1] = d.Block.Key[1], d.Block.Key[0] }, false, 3},
		{"owner", func(d *Document) { d.Owner = "else" }, true, 3},
		{"limit", func(d *Document) { d.Limit = 9 }, true, 3},
		{"match", func(d *Document) { d.Match.Path = "" }, true, 3},
		{"lateness", func(d *Document) { d.Lateness = 0 }, true, 3},
		{"max_lag", func(d *Document) { d.MaxLag = time.Second }, true, 3},
		{"no block", func(d *Document) { d.Block = nil }, true, 3},
		{"ttl", func(d *Document) { d.Block.TTL = time.Second }, true, 3},
		{"window", func(d *Document) { d.Window = time.Second }, true, 4},
		{"defaults written out", func(d *Document) { d.fillCounting() }, false, 3},
		{"algorithm", func(d *Document) { d.Algorithm = AlgorithmSlidingLog }, true, 4},
		{"count", func(d *Document) { d.Count.Sum = "attrs.cost" }, true, 4},
		{"cooldown", func(d *Document) { d.Cooldown = time.Hour }, true, 3},
		{"on_missing", func(d *Document) { d.Missing = MissingGroup }, true, 4},
		{"key", func(d *Document) { d.Key = d.Key[:1] }, true, 4},
		{"order of key", func(d *Document) { d.Key[0], d.Key[1] = d.Key[1], d.Key[0] }, true, 4},
		{"prefix length", func(d *Document) { d.Key[0].V4 = 24 }, true, 4},
	} {
		d := storyRule()
		c.change(&d)
		next, changed := NextVersion(&prev, d)
		number := 7
		if c.changed {
			number = 8
		}
		if changed != c.changed || next.Number != number || next.Lineage != c.lineage || !next.Equal(&d) {
			t.Errorf("%s: got version %d, lineage %d, changed %v", c.name, next.Number, next.Lineage, changed)
		}
	}
	bucket := storyRule()
	bucket.Algorithm = AlgorithmTokenBucket
	filled, _ := NextVersion(&prev, bucket)
	bucket.Burst = 9
	if burst, changed := NextVersion(&filled, bucket); !changed || burst.Lineage != filled.Lineage || filled.Lineage != 4 {
		t.Errorf("burst: got lineage %d after %d, changed %v", burst.Lineage, filled.Lineage, changed)
	}
}

func TestDiff(t *testing.T) {
	prev, next := storyRule(), storyRule()
	next.Limit, next.Match.Path, next.Match.Methods, next.Block = 3, "", nil, nil
	want := "match POST /v1/guest-tokens → any method any path|limit 2 → 3|" +
		"block.key [{field: ip, v4: 32, v6: 64}, device] → none|block.ttl 15m → none|block.extend on-hit → none"
	if got := strings.Join(Diff(&prev, &next), "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = "id guest-token-flood|owner identity|match POST /v1/guest-tokens|key [{field: ip, v4: 32, v6: 64}, device]|" +
		"on_missing skip|limit 2|window 5m|algorithm sliding|count events|cooldown 1m|lateness 1m|max_lag 1m|" +
		"block.key [{field: ip, v4: 32, v6: 64}, device]|block.ttl 15m|block.extend on-hit"
	if got := strings.Join(Diff(nil, &prev), "|"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := Diff(&prev, nil); len(got) != 1 || got[0] != "removed" || Diff(nil, nil) != nil {
		t.Errorf("removed: got %q", got)
	}
}

func TestYAML(t *testing.T) {
	d := storyRule()
	const want = `id: guest-token-flood
owner: identity
match:
  method: POST
  path: /v1/guest-tokens
  path_as: normal
  path_case: exact
key: [{field: ip, v4: 32, v6: 64}, device]
on_missing: skip
limit: 2
window: 5m
algorithm: sliding
count: events
cooldown: 1m
lateness: 1m
max_lag: 1m
block:
  key: [{field: ip, v4: 32, v6: 64}, device]
  ttl: 15m
  extend: on-hit
`
	if got := d.YAML(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What commands show of a version is its stored form, but for durations, which are as in documents; a duration that is added and not
// shown so is seen here as a number of nanoseconds.
func TestShownVersionsHaveDurationsAsDocumentsDo(t *testing.T) {
	src, err := os.ReadFile("testdata/every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := parse("every-field.yaml", src, testEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		d    Document
		want map[string]any
		ttl  any
	}{
		{docs[0], map[string]any{"window": "1h30m", "cooldown": "10m", "lateness": "15m", "max_lag": "1m30s"}, "7d"},
		{docs[1], map[string]any{"window": "1s", "cooldown": "1m", "lateness": "1m", "max_lag": "1m"}, nil},
		{storyRule(), map[string]any{"window": "5m", "lateness": "1m", "max_lag": "1m"}, "15m"},
	} {
		members := func(v any) (m map[string]any) {
			b, err := json.Marshal(v)
			if err == nil {
				err = json.Unmarshal(b, &m)
			}
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		v := Version{Document: tt.d, Number: 3, Lineage: 2, Pending: true, Raised: &Raise{Limit: 50, Until: 7}}
		want, got := members(v), members(v.Shown())
		for name := range tt.want {
			if _, stored := want[name]; !stored {
				t.Errorf("%s: %s is shown and not stored", tt.d.ID, name)
			}
		}
		maps.Copy(want, tt.want)
		if block, ok := want["block"].(map[string]any); ok {
			block["ttl"] = tt.ttl
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\ngot  %v\nwant %v", tt.d.ID, got, want)
		}
		var numbers func(place string, v any)
		numbers = func(place string, v any) {
			switch v := v.(type) {
			case map[string]any:
				for name := range v {
					numbers(place+"."+name, v[name])
				}
			case float64:
				if v >= float64(time.Second) {
					t.Errorf("%s%s is shown as %v", tt.d.ID, place, v)
				}
			}
		}
		numbers("", got)
	}
}
