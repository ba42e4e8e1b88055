package allow

import (
	"context"
	"net/netip"
	"slices"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// standing is a block that holds a source which its rule counts no longer.
type standing struct {
	Rule    string          `json:"rule"`
	Subject traffic.Subject `json:"subject"`
	Until   traffic.Time    `json:"until"`
	Command string          `json:"command"`
}

// maxStanding bounds the blocks that are listed.
const maxStanding = 20

// look finds the blocks in force, of the rules that name the list, whose source an entry names.
func (r *report) look(ctx context.Context, in *Installation, entries []rules.AllowEntry) error {
	if len(r.Rules) == 0 {
		return nil
	}
	redis, err := service.OpenRedis(in.Config)
	if err != nil {
		return err
	}
	defer func() { _ = redis.Close() }() // nothing is under way any more
	if err := service.WaitRedis(ctx, redis, service.AnswerTimeout, in.Log); err != nil {
		return err
	}
	found, err := redis.List(ctx, service.Now(), blocklist.Filter{})
	if err != nil {
		return err
	}
	for i := range found.Items {
		b := &found.Items[i]
		if b.Block == nil || !b.InForce || !slices.Contains(r.Rules, b.Rule) || !names(entries, b.Subject) {
			continue
		}
		if len(r.Blocks) == maxStanding {
			r.BlocksCut = true
			return nil
		}
		r.Blocks = append(r.Blocks, standing{Rule: b.Rule, Subject: b.Subject, Until: b.Block.Until,
			Command: "weir blocks release " + b.Rule + " " + subject.Text(b.Subject) + " --reason …"})
	}
	return nil
}

// names reports whether one of entries has to do with the blocked source: it has the value, or addresses of it.
func names(entries []rules.AllowEntry, blocked traffic.Subject) bool {
	values, err := blocked.Values()
	if err != nil {
		return false
	}
	for i := range entries {
		e := &entries[i]
		field, _ := e.Kind.Field()
		for _, v := range values {
			if v.Field != field.String() || v.Missing {
				continue
			}
			if p, ok := e.Prefix(); ok {
				if q, err := netip.ParsePrefix(v.Value); err == nil && p.Overlaps(q) {
					return true
				}
			} else if v.Value == e.Value || v.Digest && v.Value == string(traffic.AppendStoredValue(nil, e.Value)) {
				return true
			}
		}
	}
	return false
}
