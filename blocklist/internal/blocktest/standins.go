package blocktest

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// decisionLog stands in for the blocks topic and for history, which keeps each decision once.
type decisionLog struct {
	mu   sync.Mutex
	All  []blocklist.Decision
	Fail error // answered instead, once
}

func (l *decisionLog) Append(_ context.Context, _ int, decisions []blocklist.Decision) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Fail; err != nil {
		l.Fail = nil
		return err
	}
	l.All = append(l.All, decisions...)
	return nil
}

func (l *decisionLog) ActiveBlocks(_ context.Context, q blocklist.ActiveQuery) ([]blocklist.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var page []blocklist.Decision
	for _, d := range l.All {
		if d.Action != blocklist.ActionWithheld && (d.Action == blocklist.ActionReleased) == q.Released && (q.After == nil || order(d, *q.After) > 0) {
			page = append(page, d)
		}
	}
	slices.SortFunc(page, order)
	return page[:min(len(page), q.Limit)], nil
}

// order is that of ActiveBlocks.
func order(a, b blocklist.Decision) int {
	return cmp.Or(cmp.Compare(b.Until, a.Until), cmp.Compare(b.ID, a.ID))
}

// Take returns what was appended since the last take, in words.
func (l *decisionLog) Take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, d := range l.All {
		word := string(d.Action)
		if d.Action == blocklist.ActionWithheld {
			word += " " + d.Reason
		}
		out = append(out, word)
	}
	l.All = nil
	return out
}

// Decided counts, in words, the decisions since the first n.
func (l *decisionLog) Decided(n int) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := map[string]int{}
	for i := range l.All[n:] {
		d := &l.All[n+i]
		words[string(d.Action)+" "+d.WithheldReason()]++
	}
	return words
}

func (l *decisionLog) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.All)
}

// ruleStore stands in for the rule store.
type ruleStore struct {
	mu     sync.Mutex
	States map[string]rules.ModeState
	Block  map[string]*rules.Block // by rule; every version says the same
	fail   error                   // answered by both methods while set
	lost   error                   // answered about versions while set
	Edit   func(v *rules.Version)  // nil: every version says the same
	hang   bool                    // both methods take the question and never answer, as a frozen server does
}

func (s *ruleStore) Modes(ctx context.Context) ([]rules.ModeState, error) {
	if err := s.hangs(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []rules.ModeState
	for _, m := range s.States {
		out = append(out, m)
	}
	return out, s.fail
}

// hangs waits for the end of the caller's timeout while the store hangs.
func (s *ruleStore) hangs(ctx context.Context) error {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if !hang {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *ruleStore) Freeze(hang bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hang = hang
}

func (s *ruleStore) RuleVersion(ctx context.Context, id string, number int) (*rules.Version, bool, error) {
	if err := s.hangs(ctx); err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.Block[id]
	if fail := cmp.Or(s.fail, s.lost); !ok || fail != nil {
		return nil, false, fail
	}
	v := &rules.Version{
		Document: rules.Document{ID: id, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute, Block: b}, Number: number,
	}
	if s.Edit != nil {
		s.Edit(v)
	}
	return v, true, nil
}

func (s *ruleStore) Set(rule string, mode rules.Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.States[rule]
	m.Rule, m.Mode, m.Generation = rule, mode, m.Generation+1
	s.States[rule] = m
}

// Put sets what the rule store says of a rule's mode.
func (s *ruleStore) Put(m rules.ModeState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.States[m.Rule] = m
}

// AnswerVersions makes what is asked about versions fail with err, or work again.
func (s *ruleStore) AnswerVersions(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = err
}

// Answer makes both methods fail with err, or work again.
func (s *ruleStore) Answer(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

type deadLetters struct{ Letters []traffic.DeadLetter }

func (d *deadLetters) Put(_ context.Context, letters []traffic.DeadLetter) error {
	d.Letters = append(d.Letters, letters...)
	return nil
}

// Clock is the real time plus what a test adds: Redis expires keys by the real one.
type Clock struct {
	mu      sync.Mutex
	stopped time.Time // zero: it goes
	ahead   time.Duration
}

// Now is the real time plus what was added.
func (c *Clock) Now() traffic.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return traffic.At(c.stopped.Add(c.ahead))
	}
	return traffic.At(time.Now().Add(c.ahead))
}

// Stop lets no time pass but what is added, for tests of an age that a busy machine would raise.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = time.Now()
}

// Add moves the clock ahead.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// Quiet is a logger whose lines nobody reads.
func Quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
