package blocklist

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// NewRelease words an operator's release of subject from rule, as a record for the hits topic. It goes to the
// partition that Hit.Partition names, behind every hit of the block, and ENFORCE acts on it.
func NewRelease(subject traffic.Subject, rule, by, reason string, now traffic.Time) (detectors.Hit, error) {
	if err := (Name{Subject: subject, Rule: rule}).Check(); err != nil {
		return detectors.Hit{}, fmt.Errorf("release: %w", err)
	}
	if by == "" {
		return detectors.Hit{}, errors.New("release: by is empty, allowed: who releases")
	}
	if !Storable(now) {
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
		if retry.Sleep(ctx, waitPoll) != nil {
			return Tombstone{}, fmt.Errorf("release of %s from rule %s has not been seen in Redis: %w", request.BlockSubject, request.Rule, errors.Join(err, ctx.Err()))
		}
	}
}
