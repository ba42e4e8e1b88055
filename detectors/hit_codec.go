package detectors

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
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

// DecodeHit reads a record of the hits topic. A newer format gives *UnknownFormatError, anything else that is wrong an
// error that wraps ErrHit. Unknown members are ignored; unknown kinds are the reader's to skip.
func DecodeHit(b []byte) (Hit, error) {
	var h Hit
	if err := json.Unmarshal(b, &h); err != nil {
		return Hit{}, fmt.Errorf("%w: %w", ErrHit, err)
	}
	if h.Format != HitFormat {
		return Hit{}, &UnknownFormatError{What: "hit", Got: fmt.Sprint(h.Format), Known: fmt.Sprint(HitFormat)}
	}
	if h.Kind == "" || h.ID == "" {
		return Hit{}, fmt.Errorf("%w: kind %q and id %q, neither may be empty", ErrHit, h.Kind, h.ID)
	}
	return h, nil
}

// Partition is the partition of the hits topic, of n, that h belongs to: FNV-1a over the block subject, or over the
// subject where no block is possible. All offences of one block identity meet in one partition, whatever the rule.
func (h *Hit) Partition(n int) int {
	s := h.BlockSubject
	if s == "" {
		s = h.Subject
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(s)) // a hash never fails
	return int(sum.Sum64() % uint64(n))
}
