package detectors_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func drawKeyed(t *rapid.T) detectors.Keyed {
	number := rapid.Int64Range(0, 1<<62)
	k := detectors.Keyed{
		Kind:       rapid.SampledFrom([]detectors.KeyedKind{detectors.KeyedEvent, detectors.KeyedTick, detectors.KeyedLoss}).Draw(t, "kind"),
		Generation: number.Draw(t, "g"), Source: rapid.IntRange(0, 1000).Draw(t, "p"), Offset: number.Draw(t, "o"),
		Prev: detectors.NoOffset, Time: traffic.Time(rapid.Int64().Draw(t, "time")),
		Format: rapid.IntRange(detectors.OldestRecordFormat, detectors.RecordFormat).Draw(t, "format"),
	}
	if k.Offset > 0 && rapid.Bool().Draw(t, "prev") {
		k.Prev = rapid.Int64Range(0, k.Offset-1).Draw(t, "prev offset")
	}
	switch k.Kind {
	case detectors.KeyedTick:
		k.Idle, k.Clock = rapid.Bool().Draw(t, "idle"), traffic.Time(rapid.Int64().Draw(t, "clock"))
	case detectors.KeyedEvent:
		k.Progress, k.Version = traffic.Time(rapid.Int64().Draw(t, "progress")), number.Draw(t, "version")
		k.Rules = rapid.SliceOfNDistinct(rapid.IntRange(0, 1000), 1, 5, rapid.ID).Draw(t, "rules")
		slices.Sort(k.Rules)
		if k.Format >= rules.CountingRecordFormat && rapid.Bool().Draw(t, "sums") {
			k.Units = rapid.SliceOfN(rapid.Int64Range(0, 1<<62), len(k.Rules), len(k.Rules)).Draw(t, "units")
		}
		if k.Format >= rules.EvidenceRecordFormat {
			drawEvidence(t, &k)
		}
		for _, s := range []*string{&k.Identity.Device, &k.Identity.User, &k.Identity.APIKey, &k.Identity.Session} {
			*s = string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		}
		k.Identity.IP = rapid.SampledFrom([]netip.Addr{{}, netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}).Draw(t, "ip")
		k.Sample = append([]byte{}, rapid.SliceOf(rapid.Byte()).Draw(t, "sample")...)
	}
	return k
}

// drawEvidence draws what is known of blocks and of the source, and at times leaves no rule that counts the event.
func drawEvidence(t *rapid.T, k *detectors.Keyed) {
	k.Good = rapid.SampledFrom([]detectors.Good{detectors.NotJudged, detectors.NotGood, detectors.KnownGood}).Draw(t, "good")
	for _, r := range rapid.SliceOfNDistinct(rapid.IntRange(0, 1000), 0, 5, rapid.ID).Draw(t, "reached") {
		if !slices.Contains(k.Rules, r) {
			k.Reached = append(k.Reached, r)
		}
	}
	slices.Sort(k.Reached)
	if (len(k.Reached) > 0 || k.Good == detectors.KnownGood) && rapid.Bool().Draw(t, "counted by none") {
		k.Rules, k.Units = nil, nil
	}
	for _, r := range k.Rules {
		if rapid.Bool().Draw(t, "beyond") {
			k.Beyond = append(k.Beyond, r)
		}
	}
}

func TestKeyedRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := drawKeyed(t)
		raw := detectors.AppendKeyed([]byte("before"), &k)[len("before"):]
		var got detectors.Keyed
		if err := detectors.DecodeKeyed(raw, &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Rules) == 0 {
			got.Rules = nil
		}
		if len(got.Units) == 0 {
			got.Units = nil
		}
		if len(got.Reached) == 0 {
			got.Reached = nil
		}
		if len(got.Beyond) == 0 {
			got.Beyond = nil
		}
		if !reflect.DeepEqual(got, k) {
			t.Fatalf("got %+v\nwant %+v", got, k)
		}
		for n := range raw {
			if err := detectors.DecodeKeyed(raw[:n], &got); err == nil {
				t.Fatalf("the first %d of %d bytes decode", n, len(raw))
			}
		}
	})
}

func TestKeyedOfANewerFormat(t *testing.T) {
	k := detectors.Keyed{Kind: detectors.KeyedTick, Prev: detectors.NoOffset}
	raw := detectors.AppendKeyed(nil, &k)
	raw[0]++
	var newer *detectors.UnknownFormatError
	if err := detectors.DecodeKeyed(raw, &k); !errors.As(err, &newer) {
		t.Errorf("got %v", err)
	}
}

func FuzzDecodeKeyed(f *testing.F) {
	k := detectors.Keyed{Kind: detectors.KeyedEvent, Generation: 1, Source: 2, Offset: 3, Prev: 1, Rules: []int{0, 4}, Sample: []byte("{}")}
	f.Add(detectors.AppendKeyed(nil, &k))
	k.Units = []int64{7, 0}
	f.Add(detectors.AppendKeyed(nil, &k))
	k.Reached, k.Beyond, k.Good = []int{1, 7}, []int{4}, detectors.NotGood
	f.Add(detectors.AppendKeyed(nil, &k))
	k.Rules, k.Units, k.Reached, k.Beyond, k.Good = nil, nil, nil, nil, detectors.KnownGood
	f.Add(detectors.AppendKeyed(nil, &k))
	k.Format = 1
	f.Add(detectors.AppendKeyed(nil, &k))
	k.Kind = detectors.KeyedTick
	f.Add(detectors.AppendKeyed(nil, &k))
	f.Fuzz(func(t *testing.T, b []byte) {
		var k, again detectors.Keyed
		if err := detectors.DecodeKeyed(b, &k); err != nil {
			return
		}
		if err := detectors.DecodeKeyed(detectors.AppendKeyed(nil, &k), &again); err != nil || !reflect.DeepEqual(k, again) {
			t.Errorf("%+v\nreads again as %+v (%v)", k, again, err)
		}
	})
}

// A CRC protects snapshots from accidents; whatever has a right one must be refused or restored whole: it encodes, it
// restores again to the same bytes, and it folds.
func FuzzRestore(f *testing.F) {
	b := goldenBench(f)
	m := newMany(f, 2, 0, everyRule(1, 10*time.Second, 40*time.Second))
	for i := range 6 {
		m.send(i%2, origin+traffic.Time(i)*second, "192.0.2.1", fmt.Sprint(i), 2)
	}
	for _, raw := range [][]byte{b.p.Snapshot(nil), m.p.Snapshot(nil), crowded(f).p.Snapshot(nil),
		everyBeside(f).p.Snapshot(nil), readFile(f, "snapshot-9.bin"), readFile(f, "snapshot-8.bin"),
		readFile(f, "snapshot-7.bin"), readFile(f, "snapshot-6.bin"), readFile(f, "snapshot-2.bin"),
		readFile(f, "snapshot-2-text.bin"), readFile(f, "snapshot-3.bin")} {
		f.Add(raw[:len(raw)-4])
	}
	table := crc32.MakeTable(crc32.Castagnoli)
	cfg := b.cfg
	cfg.Budget = 24 << 10
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := binary.BigEndian.AppendUint32(slices.Clone(body), crc32.Checksum(body, table))
		p, err := detectors.Restore(cfg, raw)
		if err != nil {
			return
		}
		first := p.Snapshot(nil)
		q, err := detectors.Restore(cfg, first)
		if err != nil {
			t.Fatalf("a restored state does not restore: %v", err)
		}
		if !slices.Equal(q.Snapshot(nil), first) {
			t.Error("a restored state encodes differently")
		}
		m.learn(q)
		k := detectors.Keyed{
			Kind: detectors.KeyedEvent, Generation: 1, Offset: 1 << 60, Prev: detectors.NoOffset, Time: origin, Progress: origin, Version: 1,
			Rules: []int{0, 1, 2, 3}, Identity: traffic.Identity{IP: netip.MustParseAddr("192.0.2.1"), Device: "d"},
		}
		q.AcceptGap(0, k.Offset)
		_, _ = q.Fold(origin, &k, nil) // an error is as good as any answer
		k = detectors.Keyed{Kind: detectors.KeyedTick, Generation: 1, Offset: 1 << 60, Prev: detectors.NoOffset, Time: traffic.EndOfTime}
		_, _ = q.Fold(origin, &k, nil)
	})
}

func FuzzDecodeHit(f *testing.F) {
	f.Add([]byte(`{"v":1,"kind":"hit","id":"x","first":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"v":1,"kind":"statistics","id":"x","first":1,"trial":{"of":"hit","reached":3,"refused":2,"limits":[5,6],"refused_at":[2,1]}}`))
	f.Add([]byte(`{"v":1,"kind":"hit","id":"x","rule":"r","rule_version":2,"lineage":1,"phase":"open","subject":"ip=192.0.2.1%2F32","grouped":true,"at_least":true,"cut":true,` +
		`"limit":-2,"count":123456789012345678,"peak":0,"first":"before-time","last":"2026-01-01T00:00:00.5Z","seen":"end-of-time","g":1,"p":2,"o":3,"keyed":4,"at":9,"nth":1,` +
		`"samples":["{\"path\":\"/a\\u003cb\",\"d\":\"é\"}","\u003c\n\t\u0000"],"known_good":2,"reason":"ü"}`))
	f.Add([]byte(`{"v":1,"kind":"running","id":"x","phase":"update","opened":7,"known_good":2,"refused":9}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := detectors.DecodeHit(raw)
		if err != nil {
			return
		}
		var plain detectors.Hit
		if err := json.Unmarshal(raw, &plain); err != nil || !reflect.DeepEqual(h, plain) {
			t.Fatalf("%s is %+v, and by encoding/json %+v, %v", raw, h, plain, err)
		}
		written, err := detectors.EncodeHit(&h)
		if err != nil {
			t.Fatalf("what decodes does not encode: %v", err)
		}
		if again, err := detectors.DecodeHit(written); err != nil || !reflect.DeepEqual(again, h) && string(must(detectors.EncodeHit(&again))) != string(written) {
			t.Errorf("%s is read back as %+v (%v)", written, again, err)
		}
	})
}

// What EncodeHit writes is read in one pass: encoding/json would take some forty allocations.
func TestHitsAreDecodedInOnePass(t *testing.T) {
	h := detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: "00112233445566778899aabbccddeeff", Rule: "flood", RuleVersion: 1, Lineage: 1, Phase: detectors.PhaseOpen,
		Subject: "ip=192.0.2.1%2F32", BlockSubject: "ip=192.0.2.1%2F32", Opened: 1e15, Limit: 2, WindowMS: 60_000, Count: 1, Peak: 3, First: 1e15, Last: 1e15, Seen: 1e15,
		Generation: 1, Source: 2, Offset: 3, Keyed: 3, Place: 5, Nth: 1, Users: 1, Devices: 1, Good: detectors.KnownGood, Samples: []string{`{"path":"/v1/<tokens>"}`},
	}
	written := must(detectors.EncodeHit(&h))
	read, err := detectors.DecodeHit(written)
	if err != nil || !reflect.DeepEqual(read, h) {
		t.Fatalf("%s is read as %+v, %v", written, read, err)
	}
	const most = 10
	if n := testing.AllocsPerRun(100, func() { _, err = detectors.DecodeHit(written) }); n > most || err != nil {
		t.Errorf("%v allocations, want at most %d, %v", n, most, err)
	}
}

func BenchmarkDecodeHit(b *testing.B) {
	h := detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindHit, ID: "00112233445566778899aabbccddeeff", Rule: "flood", RuleVersion: 1, Lineage: 1, Phase: detectors.PhaseOpen,
		Subject: "ip=192.0.2.1%2F32", BlockSubject: "ip=192.0.2.1%2F32", Opened: 1e15, Limit: 2, WindowMS: 60_000, Count: 1, Peak: 3, First: 1e15, Last: 1e15, Seen: 1e15,
		Generation: 1, Source: 2, Offset: 3, Keyed: 3, Place: 5, Nth: 1, Users: 1, Devices: 1, Samples: []string{`{"path":"/v1/tokens"}`},
	}
	written := must(detectors.EncodeHit(&h))
	b.Run("one pass", func(b *testing.B) {
		for b.Loop() {
			if read, err := detectors.DecodeHit(written); err != nil || read.ID != h.ID {
				b.Fatal(read, err)
			}
		}
	})
	b.Run("encoding/json", func(b *testing.B) {
		for b.Loop() {
			var read detectors.Hit
			if err := json.Unmarshal(written, &read); err != nil || read.ID != h.ID {
				b.Fatal(read, err)
			}
		}
	})
}

func TestSnapshotRefusesDamage(t *testing.T) {
	b := goldenBench(t)
	raw := b.p.Snapshot(nil)
	for i := range raw {
		damaged := slices.Clone(raw)
		damaged[i] ^= 1 << (i % 8)
		if _, err := detectors.Restore(b.cfg, damaged); err == nil {
			t.Fatalf("a flipped bit in byte %d of %d restores", i, len(raw))
		}
		if _, err := detectors.Restore(b.cfg, raw[:i]); !errors.Is(err, detectors.ErrSnapshot) {
			t.Fatalf("torn after %d bytes: %v", i, err)
		}
	}
	other := b.cfg
	other.Keyed++
	if _, err := detectors.Restore(other, raw); !errors.Is(err, detectors.ErrSnapshot) {
		t.Errorf("another partition's snapshot: %v", err)
	}
}

func goldenBench(t testing.TB) *bench {
	b := newBench(t, 2, rule(1, 10*time.Second, time.Second), rule(2, 10*time.Second, time.Second))
	for i, s := range []traffic.Time{0, 1, 2, 30, 31, 32, 12} {
		b.must(b.event(i%2, origin+s*second, "192.0.2.1", int64(1+i%2)))
	}
	b.must(b.tick(1, origin+5*second))
	return b
}

// The formats are a promise to the next version of weir: these bytes must be readable for ever after. When a format
// changes, its number rises, and the old file stays beside the new one.
func TestGoldenFormats(t *testing.T) {
	b := goldenBench(t)
	for format := detectors.OldestRecordFormat; format <= detectors.RecordFormat; format++ {
		var all []byte
		for i, l := range b.log {
			l.keyed.Format, l.keyed.Units = format, []int64{int64(l.keyed.Offset) * 100}
			l.keyed.Good, l.keyed.Reached = detectors.Good(i%3), []int{1, 3 + i}[:i%3] // formats before 6 have no place for them
			if i%3 == 1 {
				l.keyed.Beyond = l.keyed.Rules
			}
			if format >= rules.EvidenceRecordFormat && i == 2 {
				l.keyed.Rules, l.keyed.Units = nil, nil
			}
			if format >= rules.RefusalRecordFormat && i == 4 {
				l.keyed.Rules, l.keyed.Units, l.keyed.Reached, l.keyed.Beyond = nil, nil, nil, nil
				l.keyed.Verdict = traffic.Verdict{Rule: "flood", Block: "0123456789abcdef"}
			}
			raw := detectors.AppendKeyed(nil, &l.keyed)
			if err := detectors.DecodeKeyed(raw, new(detectors.Keyed)); err != nil {
				t.Errorf("format %d: %v", format, err)
			}
			all = append(append(all, byte(len(raw))), raw...)
		}
		golden(t, fmt.Sprintf("keyed-%d.bin", format), all)
	}
	golden(t, "snapshot-3.bin", everyAlgorithm(t).written(rules.LanguageRecordFormat-1))
	golden(t, "snapshot-3-crowded.bin", crowded(t).written(rules.LanguageRecordFormat-1))
	golden(t, "snapshot-4.bin", everyBeside(t).written(rules.LanguageRecordFormat))

	written := readFile(t, "hit-1.json")
	h, err := detectors.DecodeHit(written)
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := detectors.EncodeHit(&h); err != nil || !slices.Equal(raw, written) {
		t.Errorf("hit-1.json is written as %s (%v): raise the format's number", raw, err)
	}
	golden(t, "hit-1-statistics.json", must(detectors.EncodeHit(new(statistics()))))
	golden(t, "hit-1-running.json", must(detectors.EncodeHit(new(running()))))
}

// A snapshot has format 9 while it holds sums of refused requests, and the one that a build before can read when they
// are sent.
func TestSnapshotOfRefusalsIsKept(t *testing.T) {
	b := goldenBench(t)
	for i, k := range []detectors.Keyed{b.event(0, origin+40*second, "192.0.2.1", 1), b.event(1, origin+41*second,
		"192.0.2.1", 1)} {
		k.Format, k.Rules, k.Good = rules.RefusalRecordFormat, nil, detectors.Good(1+i)
		k.Verdict = traffic.Verdict{Rule: "flood", Block: "0123456789abcdef"}
		b.must(k)
	}
	raw := b.p.Snapshot(nil)
	if raw[0] != detectors.SnapshotFormat {
		t.Fatalf("format %d", raw[0])
	}
	golden(t, "snapshot-9.bin", raw)
	p, err := detectors.Restore(b.cfg, readFile(t, "snapshot-9.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Snapshot(nil), raw) {
		t.Error("restored it is written as something else")
	}
	b.now += minute
	b.must(b.tick(0, origin+42*second))
	if sums := ofKind(b.hits, detectors.KindRefused); len(sums) != 1 || sums[0].Count != 2 || sums[0].Known != 1 {
		t.Errorf("sums %+v", sums)
	}
	if raw := b.p.Snapshot(nil); raw[0] >= detectors.SnapshotFormat {
		t.Errorf("format %d with nothing that needs it", raw[0])
	}
}

// crowded is a state of every algorithm in which keys were evicted, and came back.
func crowded(t testing.TB) *many {
	m := newMany(t, 2, 24<<10, everyRule(2, 10*time.Second, 40*time.Second))
	for i := range 400 {
		m.send(i%2, origin+traffic.Time(i)*second/20, fmt.Sprintf("192.0.2.%d", 1+i%60), fmt.Sprintf("d%d", i%7), 1)
	}
	if evicted := m.p.Counts().Evicted; evicted[detectors.EvictedReturned] == 0 {
		t.Fatalf("evicted %v: nobody came back", evicted)
	}
	return m
}

// written is the snapshot that m's log leaves when its records are of a format.
func (m *many) written(format int) []byte {
	p := detectors.NewPartition(m.cfg)
	m.learn(p)
	for _, l := range m.log {
		l.keyed.Format = format
		if _, err := p.Fold(l.appended, &l.keyed, nil); err != nil {
			m.t.Fatal(err)
		}
	}
	return p.Snapshot(nil)
}

// A snapshot of format 2 restores: the log goes on with the windows that it had, the episodes that it had open close under the
// ids that they were opened by, and nothing of it is left at the end.
func TestSecondSnapshotFormatIsRead(t *testing.T) {
	m := everyAlgorithm(t)
	p, err := detectors.Restore(m.cfg, readFile(t, "snapshot-2.bin"))
	if err != nil {
		t.Fatal(err)
	}
	m.learn(p)
	if p.Keys() == 0 || p.Watermark() != m.p.Watermark() {
		t.Fatalf("%d keys, watermark %v, want %v", p.Keys(), p.Watermark(), m.p.Watermark())
	}
	again, err := detectors.Restore(m.cfg, p.Snapshot(nil))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.Snapshot(nil), p.Snapshot(nil)) {
		t.Error("what was restored from format 2 is written as something else than it is restored from format 3")
	}
	opened := map[string]bool{}
	for i := range m.hits {
		if m.hits[i].Phase == detectors.PhaseOpen {
			opened[m.hits[i].ID] = true
		}
	}
	known := 0
	for source := range 2 {
		end := m.tick(source, traffic.EndOfTime)
		hits, err := p.Fold(m.now, &end, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range hits {
			if hits[i].Phase == detectors.PhaseClosed && opened[hits[i].ID] {
				known++
			}
		}
	}
	if known < 5 || p.Keys() != 0 {
		t.Errorf("%d episodes closed under the id that they were opened by, %d keys are left", known, p.Keys())
	}
}

// A lineage whose keys are fingerprints of texts, as the first releases made them, starts anew in today's form of keys when it
// empties, also when that happens between the look ahead and the event.
func TestKeyFormIsNotLookedAheadOf(t *testing.T) {
	b := goldenBench(t)
	records := []detectors.Keyed{b.tick(0, origin+1000*second), b.tick(1, origin+1000*second)}
	records = append(records, b.event(0, origin+1000*second, "192.0.2.1", 1))
	var states [2][]byte
	for i := range states {
		p, err := detectors.Restore(b.cfg, readFile(t, "snapshot-2-text.bin"))
		if err != nil {
			t.Fatal(err)
		}
		p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{rule(1, 10*time.Second, time.Second)}}))
		p.Learn(detectors.NewPlan(&rules.Routing{Number: 2, Rules: []rules.Version{rule(2, 10*time.Second, time.Second)}}))
		var ahead []detectors.Record
		for _, k := range records {
			ahead = append(ahead, detectors.Record{Appended: b.now, Keyed: k})
			if i == 0 {
				if _, err := p.Fold(b.now, &k, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if i == 1 {
			if _, _, err := p.FoldAll(ahead, nil); err != nil {
				t.Fatal(err)
			}
		}
		if p.Keys() != 1 {
			t.Fatalf("%d keys, want that of the event alone", p.Keys())
		}
		states[i] = p.Snapshot(nil)
	}
	if !slices.Equal(states[0], states[1]) {
		t.Error("records that are folded together leave another state than one by one")
	}
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("WEIR_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s is written differently than before: raise the format's number", name)
	}
}

// While the records of a stream have a format that the release before knows, so have snapshots: with every algorithm's keys,
// the episodes that were told of, and nothing else. What is read back goes on.
func TestSnapshotsHaveTheStreamsFormat(t *testing.T) {
	m := newMany(t, 2, 24<<10, everyRule(2, 10*time.Second, 40*time.Second))
	for i := range 400 {
		k := m.event(i%2, origin+traffic.Time(i-i%7*3)*second/20, fmt.Sprintf("192.0.2.%d", 1+i%60), 1)
		k.Format, k.Identity.Device, k.Rules = rules.UncountedRecordFormat-1, fmt.Sprintf("d%d", i%7), nil
		for r := range m.rules {
			k.Rules, k.Units = append(k.Rules, r), append(k.Units, 1)
		}
		m.must(k)
	}
	raw := m.p.Snapshot(nil)
	if raw[0] != 2 {
		t.Fatalf("format %d, want 2", raw[0])
	}
	p, err := detectors.Restore(m.cfg, raw)
	if err != nil {
		t.Fatal(err)
	}
	m.learn(p)
	if p.Keys() != m.p.Keys() || p.Watermark() != m.p.Watermark() {
		t.Errorf("%d keys, watermark %v, want %d, %v", p.Keys(), p.Watermark(), m.p.Keys(), m.p.Watermark())
	}
	if again := p.Snapshot(nil); !slices.Equal(again, raw) {
		t.Error("restored it is written as something else")
	}
	newer := m.event(0, m.top[0], "192.0.2.1", 1)
	for format, want := range map[int]byte{rules.LanguageRecordFormat: 4, rules.EvidenceRecordFormat: 7} {
		p, err := detectors.Restore(m.cfg, raw)
		if err != nil {
			t.Fatal(err)
		}
		m.learn(p)
		newer.Format = format
		if _, err := p.Fold(m.now, &newer, nil); err != nil {
			t.Fatal(err)
		}
		if got := p.Snapshot(nil)[0]; got != want {
			t.Errorf("after a record of format %d: snapshot format %d, want %d", format, got, want)
		}
		older := newer
		older.Format, older.Offset = rules.UncountedRecordFormat-1, newer.Offset+1
		if _, err := p.Fold(m.now, &older, nil); err != nil {
			t.Fatal(err)
		}
		if got := p.Snapshot(nil)[0]; got != want {
			t.Errorf("after a record of format %d and an older one: snapshot format %d, want %d", format, got, want)
		}
	}
}
