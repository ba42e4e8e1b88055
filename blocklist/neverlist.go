package blocklist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/traffic"
)

// NeverEntry is a prefix that people keep from being blocked at run time, beside the configuration's.
type NeverEntry struct {
	Prefix netip.Prefix `json:"prefix"`
	Until  traffic.Time `json:"until,omitzero"` // when it ends; 0: it does not
}

// NeverEntries are all such entries at one time, as Redis tells gates.
type NeverEntries struct {
	Format   int          `json:"v"`
	Revision int64        `json:"revision"` // greater after each change
	Entries  []NeverEntry `json:"entries"`
}

// Lost are the entries that hold in n, which Redis has, and that stored lacks or ends at another time, where n is of a
// later change than stored: the store has come back older.
func (n *NeverEntries) Lost(stored *NeverEntries, now traffic.Time) (lost []NeverEntry) {
	if n.Revision <= stored.Revision {
		return nil
	}
	for _, e := range n.Entries {
		if e.Prefix.IsValid() && (e.Until == 0 || e.Until > now) && !slices.Contains(stored.Entries, e) {
			lost = append(lost, e)
		}
	}
	return lost
}

// Command adds the entry again.
func (e *NeverEntry) Command() string {
	until := ""
	if e.Until != 0 {
		until = " --until " + e.Until.Std().UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("weir never-block add %s%s --reason \"…\"", e.Prefix, until)
}

// NeverList is the never-block list of a process: that of its configuration, and the entries of which it was told last.
// Its methods may be called by several goroutines.
type NeverList struct {
	configured []netip.Prefix
	clock      func() traffic.Time

	mu  sync.Mutex // one changes state at a time
	now atomic.Pointer[neverState]
}

// neverState is what holds until an entry ends.
type neverState struct {
	told NeverEntries
	list NeverBlock
	ends traffic.Time // when the first of the entries in list ends; 0: none does
}

// NewNeverList makes a list of what is configured alone.
func NewNeverList(configured []netip.Prefix, clock func() traffic.Time) *NeverList {
	l := &NeverList{configured: configured, clock: clock}
	l.now.Store(l.state(NeverEntries{}))
	return l
}

// state makes the list of what is configured, and of the entries that have not ended.
func (l *NeverList) state(told NeverEntries) *neverState {
	s, now := &neverState{told: told}, l.clock()
	all := append([]netip.Prefix{}, l.configured...)
	for _, e := range told.Entries {
		if !e.Prefix.IsValid() || e.Until != 0 && e.Until <= now {
			continue
		}
		if all = append(all, e.Prefix); e.Until != 0 && (s.ends == 0 || e.Until < s.ends) {
			s.ends = e.Until
		}
	}
	s.list = NewNeverBlock(all)
	return s
}

// Set takes what people have entered, unless what is known is newer.
func (l *NeverList) Set(told NeverEntries) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if told.Revision > l.now.Load().told.Revision {
		l.now.Store(l.state(told))
	}
}

// Now is the list as it holds at this moment.
func (l *NeverList) Now() *NeverBlock {
	s := l.now.Load()
	if s.ends == 0 || l.clock() < s.ends {
		return &s.list
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.state(l.now.Load().told)
	l.now.Store(next)
	return &next.list
}

func decodeNever(text string) (NeverEntries, error) {
	var n NeverEntries
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return n, fmt.Errorf("never-block entries: %w", err)
	}
	if n.Format != ValueFormat {
		return n, fmt.Errorf("never-block entries: format %d, known: %d", n.Format, ValueFormat)
	}
	return n, nil
}

// Never reads the entries that were last published; revision 0 where none were, or where this build cannot read them.
func (s *Store) Never(ctx context.Context) (NeverEntries, error) {
	values, err := s.redis.client.MGet(ctx, s.keys.Never()).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return NeverEntries{}, fmt.Errorf("%s: read never-block entries: %w", s.redis.address, err)
	}
	if len(values) == 1 {
		if text, ok := values[0].(string); ok {
			if n, err := decodeNever(text); err == nil {
				return n, nil
			}
		}
	}
	return NeverEntries{}, nil
}

// SyncNever publishes the entries where Redis lacks them or has older ones, and reports whether it did. Gates act at
// once.
func (s *Store) SyncNever(ctx context.Context, now traffic.Time, entries NeverEntries) (news bool, err error) {
	known, err := s.Never(ctx)
	if err != nil || known.Revision >= entries.Revision {
		return false, err
	}
	entries.Format = ValueFormat
	text, err := json.Marshal(entries)
	if err != nil {
		return false, fmt.Errorf("publish never-block entries: %w", err)
	}
	args, err := numbering(now, StreamModes, modesLength)
	if err != nil {
		return false, err
	}
	mine, err := whose(ctx, s, true)
	if err == nil {
		err = tell(ctx, s, s.redis.scripts.never, s.keys.Never(), append(args, mine, entries.Revision, string(text)),
			mine)
	}
	if err != nil {
		return false, fmt.Errorf("publish never-block entries: %w", err)
	}
	return true, nil
}

// refreshNever takes the entries that Redis has, for what is said of blocks in force.
func (s *Store) refreshNever(ctx context.Context) error {
	told, err := s.Never(ctx)
	if err == nil {
		s.never.Set(told)
	}
	return err
}
