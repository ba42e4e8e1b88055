package pages

import (
	"context"
	"net/netip"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules/promotion"
)

// doer remembers what it was asked to do.
type doer struct {
	did     []any
	refuses error
	// refusesAllow is the error of a change of an allow list.
	refusesAllow error
	tried        acts.Tried // what documents would do
	refusesTrial error
	unchanged    bool       // acts find the rule in the mode that they ask for
	grown        acts.Grown // since a promotion's evidence was looked at
}

var _ Acts = (*doer)(nil)

func (d *doer) Promote(_ context.Context, _ access.Actor, r acts.PromoteRequest) (acts.ModeDone, error) {
	d.did = append(d.did, r)
	return acts.ModeDone{ModeSet: rulestore.ModeSet{Changed: !d.unchanged},
			SinceLooked: acts.SinceLooked{Grown: d.grown}},
		d.refuses
}

func (d *doer) Evidence(_ context.Context, _ access.Actor, r acts.EvidenceRequest) (acts.EvidenceShown, error) {
	return acts.EvidenceShown{
		Rule: r.Rule, Version: r.Version, Hash: "c0f76e34", Until: sceneTime().Std(), Summary: []string{"observed 163.3 h of 168.0 h", "would have held: 221 sources"},
		Gates: []promotion.Verdict{
			{Gate: "min_shadow", Allowed: "at least 1d", Got: "6d19h", Outcome: promotion.Passed}, {Gate: "max_known_good", Allowed: "at most 0%", Outcome: promotion.NotMeasurable},
			{Gate: "min_coverage", Allowed: "at least 50%", Outcome: promotion.NotMeasurable}, {Gate: "max_traffic_share", Allowed: "at most 1%", Got: "0.0388%", Outcome: promotion.Passed},
		},
	}, nil
}

func (d *doer) SetMode(_ context.Context, _ access.Actor, r acts.ModeRequest) (acts.ModeDone, error) {
	d.did = append(d.did, r)
	return acts.ModeDone{ModeSet: rulestore.ModeSet{Changed: !d.unchanged}}, d.refuses
}

func (d *doer) Erase(_ context.Context, _ access.Actor, r acts.EraseRequest) (acts.ErasureState, error) {
	d.did = append(d.did, r)
	return acts.ErasureState{Running: r.Reason == "long"}, d.refuses
}

func (d *doer) Release(_ context.Context, _ access.Actor, r acts.ReleaseRequest) (acts.ReleaseDone, error) {
	d.did = append(d.did, r)
	return acts.ReleaseDone{Release: "r1", Done: true}, d.refuses
}

func (d *doer) SetLimit(_ context.Context, _ access.Actor, r acts.LimitRequest) (rulestore.LimitSet, error) {
	d.did = append(d.did, r)
	return rulestore.LimitSet{}, d.refuses
}

func (d *doer) Apply(_ context.Context, _ access.Actor, r acts.ApplyRequest) (acts.ApplyDone, error) {
	d.did = append(d.did, r)
	return acts.ApplyDone{Plan: d.tried.Plan}, d.refuses
}

func (d *doer) Try(context.Context, access.Actor, acts.TryRequest) (acts.Tried, error) {
	return d.tried, d.refusesTrial
}

func (d *doer) Rollback(_ context.Context, _ access.Actor, r acts.RollbackRequest) (acts.ApplyDone, error) {
	plan := &rulestore.Plan{Changes: []rulestore.RuleChange{{
		Rule: r.Rule, Kind: rulestore.ChangePending, Version: 4, Diff: []string{"limit: 8 → 4"},
		Pending: []string{"the limit is lower"}, Warming: true,
	}}}
	if r.DryRun {
		return acts.ApplyDone{Plan: plan}, nil
	}
	d.did = append(d.did, r)
	return acts.ApplyDone{Plan: plan}, d.refuses
}

func (d *doer) ResetCount(_ context.Context, _ access.Actor, r acts.ResetRequest) (rulestore.CounterResetDone, error) {
	d.did = append(d.did, r)
	return rulestore.CounterResetDone{}, d.refuses
}

func (d *doer) ChangeAllow(_ context.Context, _ access.Actor, r acts.AllowRequest) (acts.AllowDone, error) {
	d.did = append(d.did, r)
	return acts.AllowDone{}, d.refusesAllow
}

func (d *doer) Block(_ context.Context, _ access.Actor, r acts.BlockRequest) (acts.BlockDone, error) {
	d.did = append(d.did, r)
	return acts.BlockDone{ID: "b1", Done: true}, d.refuses
}

func (d *doer) NeverBlockList(context.Context, access.Actor) ([]acts.NeverListed, error) {
	return []acts.NeverListed{
		{Prefix: netip.MustParsePrefix("203.0.113.0/24"), From: acts.NeverConfigured},
		{Prefix: netip.MustParsePrefix("198.51.100.7/32"), From: acts.NeverEntered, By: "ann", Reason: "the office",
			Added: sceneTime()},
	}, nil
}

// Partitions are four: two that stopped, one of them at a gap, one that nobody has reported for a while.
func (d *doer) Partitions(context.Context, access.Actor) ([]acts.Partition, error) {
	now, source, offset := sceneTime().Std(), 5, int64(4_711)
	return []acts.Partition{
		{Side: ingest.SideRequests, State: ingest.Running, Owner: "weir-run-1", Offset: 18_662_310, End: 18_662_412,
			Reported: now.Add(-time.Second)},
		{Side: ingest.SideRequests, Partition: 1, State: ingest.Halted, Owner: "weir-run-2", Offset: 9_120, End: 9_480,
			Reported: now.Add(-2 * time.Second), Reason: "it has no leader for 41s: a broker is away \u202e"},
		{Side: ingest.SideKeyed, State: ingest.Running, Owner: "weir-run-1", Offset: 77_310, End: 77_310, Epoch: 3,
			Watermark: sceneTime().Add(-5 * time.Second), Reported: now.Add(-4 * time.Minute)},
		{Side: ingest.SideKeyed, Partition: 12, State: ingest.Halted, Owner: "weir-run-2", Offset: 66_104, End: 68_930,
			Epoch: 4, Watermark: sceneTime().Add(-3 * time.Minute), Reported: now.Add(-2 * time.Second),
			Reason: "records of source partition 5 before offset 4711 never came", GapSource: &source,
			GapOffset: &offset},
	}, nil
}

func (d *doer) ResumePartition(_ context.Context, _ access.Actor, r acts.ResumeRequest) (acts.ResumeDone, error) {
	d.did = append(d.did, r)
	return acts.ResumeDone{Again: r.Reason == "again"}, d.refuses
}

func (d *doer) ChangeNeverBlock(_ context.Context, _ access.Actor, r acts.NeverRequest) (acts.NeverDone, error) {
	d.did = append(d.did, r)
	return acts.NeverDone{}, d.refuses
}
