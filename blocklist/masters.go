package blocklist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// masters is the run ids of all masters. A server that does not tell its id (an embedded one) has none.
func (s *Store) masters(ctx context.Context) (string, error) {
	ids := newTextSet()
	err := s.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "server").Result()
		var answered redis.Error
		if errors.As(err, &answered) {
			return nil
		}
		if err != nil {
			return err
		}
		ids.add(runID(info))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", s.address, err)
	}
	return ids.String(), nil
}

// textSet collects texts from several goroutines.
type textSet struct {
	mu    sync.Mutex
	texts []string
}

func newTextSet() *textSet { return &textSet{} }

func (s *textSet) add(text string) {
	if text == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = append(s.texts, text)
}

// String is the texts in order, so that equal sets give equal strings.
func (s *textSet) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.texts)
	return strings.Join(s.texts, ",")
}

// runID finds the server's run id in the answer to INFO server.
func runID(info string) string {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok {
			return id
		}
	}
	return ""
}
