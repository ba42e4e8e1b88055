// Package letters answers what stages could not use, and why: it reads the topic of dead letters, the newest first, page by page.
package letters

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Letter is a dead letter with its place in the topic of dead letters.
type Letter struct {
	At traffic.Time `json:"at"` // when Kafka took it
	traffic.DeadLetter
	Text string `json:"text" mask:"text"` // the beginning of the value, as far as it is text
}

// Filter selects letters. Of each member an empty value selects everything.
type Filter struct {
	Since  traffic.Time // taken by Kafka not before
	Stage  string
	Reason string
}

// Letters is a page of letters, the newest first.
type Letters struct {
	Letters []Letter      `json:"letters"`
	Total   explore.Total `json:"total"` // of all pages
	Next    string        `json:"next,omitempty"`
}

// Brokers is where the topic is read.
type Brokers interface {
	Partitions(ctx context.Context, topic string) (int, error)
}

// Reader reads letters. It is safe for concurrent use.
type Reader struct {
	brokers Brokers
	log     ingest.TimedLog
	topic   string
}

// New makes a Reader of a topic.
func New(brokers Brokers, log ingest.TimedLog, topic string) *Reader {
	return &Reader{brokers: brokers, log: log, topic: topic}
}

// Letters reads a page. With a stage or a reason all letters from Since on are read, else no more than the page may need. A stage or reason that no
// letter has, while there are letters, is an *explore.BadFilterError.
func (r *Reader) Letters(ctx context.Context, f Filter, p explore.Page) (Letters, error) {
	q := reading{f: f, log: r.log, limit: p.Limit, of: map[int]*part{}, stages: map[string]bool{}, reasons: map[string]bool{}}
	if q.limit == 0 {
		q.limit = explore.DefaultLimit
	}
	if q.limit < 0 || q.limit > explore.MostLimit {
		return Letters{}, &explore.BadFilterError{Field: "limit", Got: fmt.Sprint(p.Limit), Allowed: fmt.Sprintf("1 to %d", explore.MostLimit)}
	}
	place, err := decode(p.Cursor)
	if err != nil {
		return Letters{}, err
	}
	if err := q.begin(ctx, r, place); err != nil {
		return Letters{}, fmt.Errorf("dead letters: %w", err)
	}
	if err := q.read(ctx); err != nil {
		return Letters{}, fmt.Errorf("dead letters: %w", err)
	}
	if err := q.known(); err != nil {
		return Letters{}, err
	}
	return q.page(place), nil
}

// place is where a page ends: before the offset of each partition that is named.
type place struct {
	Before map[int]int64 `json:"before"`
	Total  int64         `json:"total"` // of all pages, as the first one found it
}

func decode(cursor string) (*place, error) {
	if cursor == "" {
		return nil, nil
	}
	var p place
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Before == nil {
		return nil, &explore.BadFilterError{Field: "cursor", Got: cursor, Allowed: "next of the page before"}
	}
	return &p, nil
}

func (p *place) encode() string {
	text, _ := json.Marshal(p) // numbers: never an error
	return base64.RawURLEncoding.EncodeToString(text)
}

// part is a partition of the topic.
type part struct {
	start, end int64 // the letters that may be on this page and on those behind it
	next       int64 // to be read; end: it is read
	letters    []kept
	matching   int64
}

// kept is a letter with its offset in the topic of dead letters.
type kept struct {
	offset int64
	Letter
}

// reading reads partitions up to where they ended when it began, or up to where the page before ended.
type reading struct {
	f               Filter
	log             ingest.TimedLog
	limit           int
	of              map[int]*part
	stages, reasons map[string]bool // of all letters that were read
}

func (q *reading) filtered() bool { return q.f.Stage != "" || q.f.Reason != "" }

func (q *reading) begin(ctx context.Context, r *Reader, from *place) error {
	n, err := r.brokers.Partitions(ctx, r.topic)
	if err != nil {
		return err
	}
	all := ingest.AllPartitions(n)
	bounds, err := q.log.Bounds(ctx, all)
	if err != nil {
		return err
	}
	since := map[int]int64{}
	if q.f.Since != 0 {
		if since, err = q.log.OffsetsAt(ctx, all, q.f.Since); err != nil {
			return err
		}
	}
	for _, n := range all {
		p := &part{start: bounds[n].Start, end: bounds[n].End}
		if q.f.Since != 0 {
			if p.start = since[n]; p.start == ingest.NoOffset {
				continue
			}
		}
		if from != nil {
			p.end = min(p.end, from.Before[n])
		}
		if p.start >= p.end {
			continue
		}
		if p.next = p.start; !q.filtered() {
			p.matching, p.next = p.end-p.start, max(p.start, p.end-int64(q.limit))
		}
		q.of[n] = p
	}
	return nil
}

// patience is how long the reading waits for partitions whose leader is away.
const patience = 10 * time.Second

func (q *reading) read(ctx context.Context) error {
	for moved := time.Now(); ; {
		var positions []ingest.Position
		for n, p := range q.of {
			if p.next < p.end {
				positions = append(positions, ingest.Position{Partition: n, Offset: p.next})
			}
		}
		if len(positions) == 0 {
			return nil
		}
		fetched, err := q.log.Fetch(ctx, positions, ingest.DefaultFetchWait)
		if err != nil {
			return err
		}
		for i := range fetched {
			if q.take(&fetched[i]) {
				moved = time.Now()
			}
		}
		if time.Since(moved) > patience {
			return fmt.Errorf("%d partitions gave no answer for %v", len(positions), patience)
		}
	}
}

// take takes what one partition answered, and reports whether it went on.
func (q *reading) take(f *ingest.Fetched) bool {
	p := q.of[f.Partition]
	if f.Err != nil || f.Next <= p.next && len(f.Messages) == 0 {
		return false
	}
	for i := range f.Messages {
		if m := &f.Messages[i]; m.Offset < p.end {
			q.letter(p, m)
		}
	}
	p.next = f.Next
	return true
}

func (q *reading) letter(p *part, m *traffic.Message) {
	l := Letter{At: m.Appended}
	if err := json.Unmarshal(m.Value, &l.DeadLetter); err != nil {
		l.DeadLetter = traffic.DeadLetter{Stage: "unknown", Reason: "unreadable", Detail: err.Error(), Value: m.Value, Size: len(m.Value)}
	}
	l.Text = traffic.Printable(string(l.Value))
	q.stages[l.Stage], q.reasons[l.Reason] = true, true
	if q.f.Stage != "" && l.Stage != q.f.Stage || q.f.Reason != "" && l.Reason != q.f.Reason {
		return
	}
	if q.filtered() {
		p.matching++
	}
	const room = 1000 // letters, so that not each one moves all others
	if p.letters = append(p.letters, kept{m.Offset, l}); len(p.letters) > q.limit+room {
		p.letters = slices.Delete(p.letters, 0, len(p.letters)-q.limit)
	}
}

// known refuses a stage or a reason that no letter has, while there are letters.
func (q *reading) known() error {
	for _, c := range []struct {
		field, got string
		has        map[string]bool
	}{{"stage", q.f.Stage, q.stages}, {"reason", q.f.Reason, q.reasons}} {
		if c.got == "" || len(c.has) == 0 || c.has[c.got] {
			continue
		}
		allowed := slices.Sorted(maps.Keys(c.has))
		return &explore.BadFilterError{Field: c.field, Got: c.got, Allowed: strings.Join(allowed, ", "), Near: rules.Nearest(c.got, allowed)}
	}
	return nil
}

// page takes the newest letters. It goes back through each partition in the order of its offsets, whatever times Kafka gave, so that the next page can
// begin before an offset.
func (q *reading) page(from *place) Letters {
	found := Letters{Letters: []Letter{}}
	rest := place{Before: map[int]int64{}}
	matching := int64(0)
	for n, p := range q.of {
		matching += p.matching
		rest.Before[n] = p.end
	}
	if rest.Total = matching; from != nil {
		rest.Total = from.Total
	}
	found.Total.N = rest.Total
	parts := slices.Sorted(maps.Keys(q.of))
	for len(found.Letters) < q.limit {
		newest := -1
		for _, n := range parts {
			if last := len(q.of[n].letters) - 1; last >= 0 && (newest < 0 || q.of[n].letters[last].At > q.of[newest].letters[len(q.of[newest].letters)-1].At) {
				newest = n
			}
		}
		if newest < 0 {
			break
		}
		p := q.of[newest]
		last := len(p.letters) - 1
		found.Letters = append(found.Letters, p.letters[last].Letter)
		rest.Before[newest], p.letters = p.letters[last].offset, p.letters[:last]
	}
	if int64(len(found.Letters)) < matching && len(found.Letters) > 0 {
		found.Next = rest.encode()
	}
	return found
}
