package detectors

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
)

// MaxDistinct is where Hit.Users and Hit.Devices saturate.
const MaxDistinct = 64

// ErrHit is wrapped by every error of DecodeHit.
var ErrHit = errors.New("hit record")

// EncodeHit writes h as the JSON value of a record on the hits topic. The same hit gives the same bytes.
func EncodeHit(h *Hit) ([]byte, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrHit, h.ID, err)
	}
	return b, nil
}

// knownKinds are the kinds of hits that this build writes, and that its readers know what to do with.
func knownKinds() []Kind { return []Kind{KindHit, KindLate, KindUncounted, KindLoss, KindRelease} }

// DecodeHit reads a record of the hits topic. One of a newer format, or of a kind that a newer build has brought, gives
// *UnknownFormatError: what it says is lost to a reader that goes past it. Anything else that is wrong gives an error that
// wraps ErrHit. Unknown members are ignored: one that changes what the others mean raises the format.
func DecodeHit(b []byte) (Hit, error) {
	var h Hit
	err := json.Unmarshal(b, &h)
	if newer := newerHit(b, &h, err); newer != nil {
		return Hit{}, newer
	}
	switch {
	case err != nil:
		return Hit{}, fmt.Errorf("%w: %w", ErrHit, err)
	case h.Format != HitFormat:
		return Hit{}, fmt.Errorf("%w: format %d, allowed: %d", ErrHit, h.Format, HitFormat)
	case h.Kind == "" || h.ID == "":
		return Hit{}, fmt.Errorf("%w: kind %q and id %q, neither may be empty", ErrHit, h.Kind, h.ID)
	}
	return h, nil
}

// newerHit tells a hit of a newer build from a damaged one, by the members that every format has. err is what decoding
// the whole of it as h has met: the members of a newer hit may have other types.
func newerHit(b []byte, h *Hit, err error) error {
	head := struct {
		Format int  `json:"v"`
		Kind   Kind `json:"kind"`
	}{h.Format, h.Kind}
	if err != nil && json.Unmarshal(b, &head) != nil {
		return nil
	}
	switch {
	case head.Format > HitFormat:
		return &UnknownFormatError{What: "hit", Got: fmt.Sprint(head.Format), Known: fmt.Sprint(HitFormat)}
	case head.Format == HitFormat && head.Kind != "" && !slices.Contains(knownKinds(), head.Kind):
		return &UnknownFormatError{What: "hit", Got: fmt.Sprintf("%d kind %.40q", head.Format, head.Kind), Known: fmt.Sprintf("kinds %q", knownKinds())}
	}
	return nil
}

// Partition is the partition of the hits topic, of n, that h belongs to: FNV-1a over the block subject, or over the
// subject where no block is possible. All offences of one block identity meet in one partition, whatever the rule, and so
// does its release, also where that names the block as it is stored.
func (h *Hit) Partition(n int) int {
	s := h.BlockSubject
	if s == "" {
		s = h.Subject
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(s.Stored())) // a hash never fails
	return int(sum.Sum64() % uint64(n))
}
