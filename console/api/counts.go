package api

import (
	"context"
	"errors"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Counts asks the process that counts a source what it has counted.
type Counts interface {
	// Count is the count of one source of a rule; who is the source as the rule counts it, empty for a rule with the
	// empty key. *acts.UnknownName where there is no such rule, *acts.Invalid where who is no source of its key,
	// *acts.AwayError where the process does not answer.
	Count(ctx context.Context, rule string, who traffic.Subject) (Count, error)
}

// Count is what the process that counts a source answers.
type Count struct {
	detectors.Look
	Partition int    `json:"partition"` // of the keyed topic
	Owner     string `json:"owner" mask:"-"`
}

func getCount(c *call) (any, error) {
	who := traffic.Subject(c.values["subject"])
	if err := c.meant(&who); err != nil {
		return nil, err
	}
	who, err := rules.KeyedSubject(who)
	if err == nil && who != "" {
		err = checkSubject(who)
	}
	if err != nil {
		return nil, &acts.Invalid{Field: "subject", Got: c.values["subject"],
			Allowed: "a source as the rule counts it, like ip=192.0.2.1%2F32&device=tv-7: " + err.Error()}
	}
	counted, err := c.o.Reader.Counts.Count(c.r.Context(), c.r.PathValue("rule"), who)
	if invalid := (*acts.Invalid)(nil); errors.As(err, &invalid) { // it may name values that who asks is not shown
		return nil, &acts.Invalid{Field: invalid.Field, Got: c.values["subject"], Allowed: invalid.Allowed}
	}
	return counted, err
}
