package stream

import (
	"context"

	"github.com/weirhq/weir/cmd/weir/internal/service"
)

// overtake makes Redis this installation's, and compares the numbers of the rule store with those that Kafka's
// commits and Redis name.
func (m *Migration) overtake(ctx context.Context) error {
	var routing int64
	for _, a := range m.commits {
		if a != nil {
			routing = max(routing, a.Version)
		}
	}
	if m.opt.TakeRedis {
		line, err := service.TakeRedis(ctx, m.conf, m.store, m.by)
		if err != nil {
			return err
		}
		m.say("%s", line)
	}
	lines, err := service.CompareNumbers(ctx, m.conf, m.store, routing, m.by)
	for _, line := range lines {
		m.say("%s", line)
	}
	return err
}
