package stream

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/rules"
)

// Beside makes o a backtest of the live stream of an installation, as its stages read it, and gives the topic to read. Rules
// whose ids are known there get the number and the lineage that they would get if they were applied, which are part of hits.
func Beside(ctx context.Context, in *service.Installation, routing *rules.Routing, o *backtest.Options) (backtest.Live, error) {
	secret, err := in.History.Streams.SecretByID(ctx, routing.SecretID)
	if err != nil {
		return backtest.Live{}, err
	}
	o.Identity, o.Secret, o.Generation, o.Partitions = routing.Identity, secret, in.Stream.Generation, in.RequestsPartitions
	o.KnownGood = routing.KnownGood
	o.Format, o.Fields, o.MaxEventBytes = routing.Format.Name, routing.Format.Map, routing.Format.MaxEventBytes
	for i := range o.Rules {
		id := o.Rules[i].ID
		if at := slices.IndexFunc(routing.Rules, func(v rules.Version) bool { return v.ID == id }); at >= 0 {
			o.Rules[i], _ = rules.NextVersion(&routing.Rules[at], o.Rules[i].Document)
		}
	}
	return backtest.Live{
		Log: in.Kafka.Log(in.Names.Requests), Topic: in.Names.Requests, IdleMargin: time.Duration(in.Config.Detect.IdleMargin),
	}, nil
}
