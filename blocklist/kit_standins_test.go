package blocklist

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// log stands in for the blocks topic and for history, which keeps each decision once.
type decisionLog struct {
	mu   sync.Mutex
	all  []Decision
	fail error // answered instead, once
}

func (l *decisionLog) Append(_ context.Context, _ int, decisions []Decision) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.fail; err != nil {
		l.fail = nil
		return err
	}
	l.all = append(l.all, decisions...)
	return nil
}

func (l *decisionLog) ActiveBlocks(_ context.Context, q ActiveQuery) ([]Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var page []Decision
	for _, d := range l.all {
		if d.Action != ActionWithheld && (d.Action == ActionReleased) == q.Released && (q.After == nil || order(d, *q.After) > 0) {
			page = append(page, d)
		}
	}
	slices.SortFunc(page, order)
	return page[:min(len(page), q.Limit)], nil
}

// order is that of ActiveBlocks.
func order(a, b Decision) int {
	return cmp.Or(cmp.Compare(b.Until, a.Until), cmp.Compare(b.ID, a.ID))
}

// take returns what was appended since the last take, in words.
func (l *decisionLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, d := range l.all {
		word := string(d.Action)
		if d.Action == ActionWithheld {
			word += " " + d.Reason
		}
		out = append(out, word)
	}
	l.all = nil
	return out
}

// decided counts, in words, the decisions since the first n.
func (l *decisionLog) decided(n int) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := map[string]int{}
	for i := range l.all[n:] {
		d := &l.all[n+i]
		words[string(d.Action)+" "+d.WithheldReason()]++
	}
	return words
}

func (l *decisionLog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// ruleStore stands in for the rule store.
type ruleStore struct {
	mu    sync.Mutex
	modes map[string]rules.ModeState
	block map[string]*rules.Block // by rule; every version says the same
	fail  error                   // answered by both methods while set
	edit  func(v *rules.Version)  // nil: every version says the same
	hang  bool                    // both methods take the question and never answer, as a frozen server does
}

func (s *ruleStore) Modes(ctx context.Context) ([]rules.ModeState, error) {
	if err := s.hangs(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []rules.ModeState
	for _, m := range s.modes {
		out = append(out, m)
	}
	return out, s.fail
}

// hangs waits for the end of the caller's patience while the store hangs.
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

func (s *ruleStore) freeze(hang bool) {
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
	b, ok := s.block[id]
	if !ok || s.fail != nil {
		return nil, false, s.fail
	}
	v := &rules.Version{
		Document: rules.Document{ID: id, Window: time.Minute, Lateness: time.Minute, MaxLag: time.Minute, Block: b}, Number: number,
	}
	if s.edit != nil {
		s.edit(v)
	}
	return v, true, nil
}

func (s *ruleStore) set(rule string, mode rules.Mode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.modes[rule]
	m.Rule, m.Mode, m.Generation = rule, mode, m.Generation+1
	s.modes[rule] = m
}

// answer makes both methods fail with err, or work again.
func (s *ruleStore) answer(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

type deadLetters struct{ letters []traffic.DeadLetter }

func (d *deadLetters) Put(_ context.Context, letters []traffic.DeadLetter) error {
	d.letters = append(d.letters, letters...)
	return nil
}

// clock is the real time plus what a test adds: Redis expires keys by the real one.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() traffic.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return traffic.At(time.Now().Add(c.ahead))
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }
