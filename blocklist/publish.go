package blocklist

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// SyncModes publishes those of modes that Redis lacks or knows in an older form, and returns how many those were. What it
// holds is read each time rather than remembered: a flush, or somebody who published an older form late, is made good by
// the next call. Only the server with the modes is asked, whatever becomes of the others.
func (s *Store) SyncModes(ctx context.Context, now traffic.Time, modes []rules.ModeState) (int, error) {
	hash, err := s.client.HGetAll(ctx, s.keys.Rules()).Result()
	if err != nil {
		return 0, fmt.Errorf("%s: read modes: %w", s.address, err)
	}
	var behind []rules.ModeState
	for i := range modes {
		isBehind, err := modeIsBehind(hash[modes[i].Rule], &modes[i])
		if err != nil {
			return 0, err
		}
		if isBehind {
			behind = append(behind, modes[i])
		}
	}
	if err := s.PublishModes(ctx, now, behind); err != nil {
		return 0, err
	}
	return len(behind), nil
}

// modeIsBehind reports whether published, a mode as Redis holds it, is to be replaced by mode. Of one generation, that of
// the newer version counts. What else differs is compared in this build's own words: a member that only another build
// writes makes no difference here, or two builds side by side would replace each other's text for ever.
func modeIsBehind(published string, mode *rules.ModeState) (bool, error) {
	known, err := decodeMode(mode.Rule, published)
	switch {
	case err != nil:
		return true, nil // absent, or not to be read: every gate takes it for a rule that blocks nobody
	case known.Generation != mode.Generation:
		return known.Generation < mode.Generation, nil
	case known.Newest != mode.Newest:
		return known.Newest < mode.Newest, nil
	}
	theirs, err := json.Marshal(known)
	if err != nil {
		return false, fmt.Errorf("mode of rule %s: %w", mode.Rule, err)
	}
	ours, err := json.Marshal(mode)
	if err != nil {
		return false, fmt.Errorf("mode of rule %s: %w", mode.Rule, err)
	}
	return string(theirs) != string(ours), nil
}
