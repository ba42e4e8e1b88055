package blocklist

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Filter narrows a listing. Its zero value lists every block and no tombstone.
type Filter struct {
	Rule       string
	Subject    traffic.Subject
	Tombstones bool // list releases too
}

// Listed is one block or one tombstone in Redis; exactly one of the two is set.
type Listed struct {
	Subject   traffic.Subject `json:"subject"`
	Rule      string          `json:"rule"`
	Block     *Block          `json:"block,omitempty"`
	Tombstone *Tombstone      `json:"tombstone,omitempty"`
	Remaining time.Duration   `json:"remaining"` // nanoseconds until it expires
	// InForce says whether gates refuse for it: its rule blocks, and has not been promoted anew since, and its address is
	// none that never is.
	InForce bool `json:"in_force"`
}

// Listing is what List found.
type Listing struct {
	Items      []Listed
	Unreadable int  // keys that this build cannot read
	Cut        bool // the search ended early: there may be more (Containing only)
}

// List reads the blocks of the namespace, by subject and rule. It walks over all keys and takes a second or so for
// each million.
func (s *Store) List(ctx context.Context, now traffic.Time, filter Filter) (Listing, error) {
	modes, err := s.modesByRule(ctx)
	if err != nil {
		return Listing{}, err
	}
	filter.Subject = filter.Subject.Stored()
	var mu sync.Mutex
	var out Listing
	unreadable := func() {
		mu.Lock()
		defer mu.Unlock()
		out.Unreadable++
	}
	err = s.scan(ctx, func(h held, tombstone bool, value string) {
		if filter.Rule != "" && filter.Rule != h.rule || filter.Subject != "" && filter.Subject != h.subject || tombstone && !filter.Tombstones {
			return
		}
		item, err := s.listed(h, tombstone, value, modes, now)
		if err != nil {
			unreadable()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		out.Items = append(out.Items, item)
	}, unreadable)
	if err != nil {
		return Listing{}, err
	}
	slices.SortFunc(out.Items, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.order(), b.order()))
	})
	out.Items = slices.CompactFunc(out.Items, func(a, b Listed) bool { // a SCAN may return a key twice
		return a.Subject == b.Subject && a.Rule == b.Rule && a.order() == b.order()
	})
	return out, nil
}

func (l *Listed) order() int {
	if l.Tombstone != nil {
		return 1
	}
	return 0
}

// Except tells which blocks are in force for nobody: gates leave them out when they read them. It is called before s is used.
func (s *Store) Except(never NeverBlock) { s.never = never }

func (s *Store) listed(h held, tombstone bool, value string, modes map[string]rules.ModeState, now traffic.Time) (Listed, error) {
	item := Listed{Subject: h.subject, Rule: h.rule}
	if tombstone {
		t, err := DecodeTombstone([]byte(value))
		item.Tombstone, item.Remaining = &t, t.Until.Sub(now)
		return item, err
	}
	b, err := DecodeBlock([]byte(value))
	item.Block, item.Remaining = &b, b.Until.Sub(now)
	var mode *rules.ModeState
	if m, ok := modes[h.rule]; ok {
		mode = &m
	}
	item.InForce = s.Unheld(h.subject, &b, mode, now) == ""
	return item, err
}

// Unheld says why gates refuse nobody for a block of subject, and "" if they refuse. mode is the one that Redis has for its
// rule, nil for none.
func (s *Store) Unheld(subject traffic.Subject, b *Block, mode *rules.ModeState, now traffic.Time) string {
	switch {
	case s.never.Holds(subject):
		return "its address is one that is never blocked (never_block, or nobody's in particular)"
	case b.Until <= now:
		return "it has ended"
	case mode == nil:
		return "Redis has no mode for its rule: weir run publishes it"
	case mode.Mode != rules.ModeBlock:
		return "its rule is in mode " + string(mode.Mode)
	case !b.InForce(mode):
		return "its rule was promoted anew since"
	}
	return ""
}

func (s *Store) modesByRule(ctx context.Context) (map[string]rules.ModeState, error) {
	list, err := s.Modes(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]rules.ModeState, len(list))
	for _, m := range list {
		out[m.Rule] = m
	}
	return out, nil
}

// Get reads the block and the tombstone of one subject and rule; nil for what is not there. A subject with long values may
// be given whole, and is then also looked for as an older weir wrote it.
func (s *Store) Get(ctx context.Context, subject traffic.Subject, rule string) (*Block, *Tombstone, error) {
	if err := (held{subject: subject, rule: rule}).check(); err != nil {
		return nil, nil, err
	}
	block, tombstone, err := s.get(ctx, held{subject: subject.Stored(), rule: rule})
	if err != nil || subject == subject.Stored() {
		return block, tombstone, err
	}
	elderBlock, elderTombstone, err := s.get(ctx, held{subject: subject, rule: rule})
	if tombstone == nil || elderTombstone != nil && elderTombstone.Request == tombstone.Request && elderTombstone.Stood() {
		tombstone = elderTombstone // of the two halves of one release, the one that found something
	}
	return cmp.Or(block, elderBlock), tombstone, err
}

func (s *Store) get(ctx context.Context, h held) (block *Block, tombstone *Tombstone, err error) {
	// Both keys lie in one slot, so one command reads them at one moment.
	values, err := s.client.MGet(ctx, s.keys.Block(h.subject, h.rule), s.keys.Tombstone(h.subject, h.rule)).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.address, err)
	}
	if text, ok := values[0].(string); ok {
		b, err := DecodeBlock([]byte(text))
		if err != nil {
			return nil, nil, err
		}
		block = &b
	}
	if text, ok := values[1].(string); ok {
		t, err := DecodeTombstone([]byte(text))
		if err != nil {
			return nil, nil, err
		}
		tombstone = &t
	}
	return block, tombstone, nil
}

// NewRelease words an operator's release of subject from rule, as a record for the hits topic. It goes to the
// partition that Hit.Partition names, behind every hit of the block, and ENFORCE acts on it.
func NewRelease(subject traffic.Subject, rule, by, reason string, now traffic.Time) (detectors.Hit, error) {
	if err := (held{subject: subject, rule: rule}).check(); err != nil {
		return detectors.Hit{}, fmt.Errorf("release: %w", err)
	}
	if by == "" {
		return detectors.Hit{}, errors.New("release: by is empty, allowed: who releases")
	}
	if !storable(now) {
		return detectors.Hit{}, fmt.Errorf("release: time %s", now)
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return detectors.Hit{}, fmt.Errorf("release: %w", err)
	}
	return detectors.Hit{
		Format: detectors.HitFormat, Kind: detectors.KindRelease, ID: hex.EncodeToString(id[:]), Rule: rule,
		BlockSubject: subject, First: now, Last: now, Seen: now, By: by, Reason: reason,
	}, nil
}

// waitPoll is how often WaitReleased looks.
const waitPoll = 50 * time.Millisecond

// WaitReleased waits until ENFORCE has acted on request, a record of NewRelease that has been appended, or on a later
// release of the same block. The context bounds it. The tombstone tells what the release found: Stood, Hit and StoodUntil.
func (s *Store) WaitReleased(ctx context.Context, request *detectors.Hit) (Tombstone, error) {
	for {
		block, tomb, err := s.Get(ctx, request.BlockSubject, request.Rule)
		if err == nil && tomb != nil && (tomb.Request == request.ID || block == nil && tomb.Released >= request.Seen) {
			return *tomb, nil
		}
		pause(ctx, waitPoll)
		if ctx.Err() != nil {
			return Tombstone{}, fmt.Errorf("release of %s from rule %s has not been seen in Redis: %w", request.BlockSubject, request.Rule, errors.Join(err, ctx.Err()))
		}
	}
}
