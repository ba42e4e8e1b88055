package letters_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// entry is a record of the topic.
type entry struct {
	offset int64
	at     traffic.Time
	value  []byte
}

// topic is a Kafka topic: offsets may be missing, and a fetch gives few records at a time.
type topic struct {
	start, end []int64
	entries    [][]entry
	away       int // this partition does not answer; -1: all do
}

func (t *topic) Partitions(context.Context, string) (int, error) { return len(t.entries), nil }

func (t *topic) Bounds(context.Context, []int) (map[int]ingest.Bounds, error) {
	all := map[int]ingest.Bounds{}
	for n := range t.entries {
		all[n] = ingest.Bounds{Start: t.start[n], End: t.end[n]}
	}
	return all, nil
}

func (t *topic) OffsetsAt(_ context.Context, _ []int, at traffic.Time) (map[int]int64, error) {
	all := map[int]int64{}
	for n, entries := range t.entries {
		all[n] = ingest.NoOffset
		for _, e := range entries {
			if e.at >= at {
				all[n] = e.offset
				break
			}
		}
	}
	return all, nil
}

func (t *topic) Fetch(ctx context.Context, positions []ingest.Position, _ time.Duration) ([]ingest.Fetched, error) {
	var all []ingest.Fetched
	for _, p := range positions {
		if p.Partition == t.away {
			continue
		}
		f := ingest.Fetched{Partition: p.Partition, Next: t.end[p.Partition]}
		for _, e := range t.entries[p.Partition] {
			if e.offset >= p.Offset && len(f.Messages) < 2 {
				f.Messages = append(f.Messages, traffic.Message{Partition: p.Partition, Offset: e.offset, Appended: e.at, Value: e.value})
				f.Next = e.offset + 1
			}
		}
		all = append(all, f)
	}
	return all, ctx.Err()
}

func letter(stage, reason, value string) []byte {
	text, _ := json.Marshal(traffic.DeadLetter{Version: 1, Stage: stage, Reason: reason, Value: []byte(value), Size: len(value)})
	return text
}

// TestPagesAreTheWhole: the pages of any size join to what a naive reading of the whole topic finds, each letter once, and each says how many there are.
func TestPagesAreTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		log := &topic{away: -1}
		type known struct {
			partition int
			entry
			stage, reason string
		}
		var all []known
		for n := range rapid.IntRange(1, 3).Draw(t, "partitions") {
			offset, at := rapid.Int64Range(0, 5).Draw(t, "start"), traffic.Time(0)
			log.start = append(log.start, offset)
			var entries []entry
			for range rapid.IntRange(0, 9).Draw(t, "letters") {
				at += traffic.Time(rapid.IntRange(0, 3).Draw(t, "later"))
				stage, reason := rapid.SampledFrom([]string{"route", "record"}).Draw(t, "stage"), rapid.SampledFrom([]string{"malformed", "refused"}).Draw(t, "reason")
				e := entry{offset, at, letter(stage, reason, fmt.Sprint(n, "/", offset))}
				entries, all = append(entries, e), append(all, known{n, e, stage, reason})
				offset++
			}
			log.entries, log.end = append(log.entries, entries), append(log.end, offset)
		}
		f := letters.Filter{
			Since: traffic.Time(rapid.IntRange(0, 4).Draw(t, "since")), Stage: rapid.SampledFrom([]string{"", "route"}).Draw(t, "of stage"), Reason: rapid.SampledFrom([]string{"", "refused"}).Draw(t, "of reason"),
		}
		var want []string
		slices.SortStableFunc(all, func(a, b known) int {
			return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.partition, b.partition), cmp.Compare(b.offset, a.offset))
		})
		stages, reasons := map[string]bool{}, map[string]bool{}
		for _, k := range all {
			if k.at < f.Since {
				continue
			}
			stages[k.stage], reasons[k.reason] = true, true
			if (f.Stage == "" || f.Stage == k.stage) && (f.Reason == "" || f.Reason == k.reason) {
				want = append(want, fmt.Sprint(k.partition, "/", k.offset))
			}
		}
		var got []string
		page := explore.Page{Limit: rapid.IntRange(1, 7).Draw(t, "limit")}
		for {
			found, err := letters.New(log, log, "dead").Letters(t.Context(), f, page)
			if bad := (*explore.BadFilterError)(nil); errors.As(err, &bad) && page.Cursor == "" &&
				len(stages) > 0 && (f.Stage != "" && !stages[f.Stage] || f.Reason != "" && !reasons[f.Reason]) {
				return
			}
			if err != nil || found.Total.N != int64(len(want)) || len(found.Letters) > page.Limit {
				t.Fatalf("%d letters of %+v, want %d; %v", len(found.Letters), found.Total, len(want), err)
			}
			for _, l := range found.Letters {
				got = append(got, l.Text)
			}
			if page.Cursor = found.Next; page.Cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// TestWhatIsNoLetter: what nobody wrote as a letter is shown as what it is, and wrong questions say what is right.
func TestWhatIsNoLetter(t *testing.T) {
	t.Parallel()
	log := &topic{start: []int64{0}, end: []int64{2}, entries: [][]entry{{{0, 1, []byte("no \x1b letter")}, {1, 2, letter("route", "malformed", "x")}}}, away: -1}
	r := letters.New(log, log, "dead")
	found, err := r.Letters(t.Context(), letters.Filter{}, explore.Page{})
	if err != nil || len(found.Letters) != 2 || found.Letters[1].Stage != "unknown" || found.Letters[1].Reason != "unreadable" || found.Letters[1].Text != "no \x1b letter" {
		t.Errorf("%+v, %v", found, err)
	}
	for _, c := range []struct {
		f    letters.Filter
		p    explore.Page
		want string
	}{
		{letters.Filter{Stage: "rote"}, explore.Page{}, "did you mean route?"},
		{letters.Filter{Reason: "x"}, explore.Page{}, "allowed: malformed, unreadable"},
		{letters.Filter{}, explore.Page{Limit: -1}, "1 to 1000"},
		{letters.Filter{}, explore.Page{Limit: 1001}, "1 to 1000"},
		{letters.Filter{}, explore.Page{Cursor: "!"}, "next of the page before"},
		{letters.Filter{}, explore.Page{Cursor: "e30"}, "next of the page before"},
	} {
		if _, err := r.Letters(t.Context(), c.f, c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
	}
}

// TestAwayPartitionsAreNotWaitedForWithoutEnd: whoever asks is told, and a request that ends takes its reading along.
func TestAwayPartitionsAreNotWaitedForWithoutEnd(t *testing.T) {
	t.Parallel()
	log := &topic{start: []int64{0}, end: []int64{1}, entries: [][]entry{{{0, 1, letter("route", "malformed", "x")}}}, away: 0}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := letters.New(log, log, "dead").Letters(ctx, letters.Filter{}, explore.Page{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
