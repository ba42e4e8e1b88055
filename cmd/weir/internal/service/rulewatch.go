package service

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/internal/ruleseries"
	"github.com/weirhq/weir/rules"
)

// ruleStore is what a ruleWatch asks.
type ruleStore interface {
	// List returns all rules that have not been removed.
	List(ctx context.Context) ([]rulestore.Rule, error)
	// WatchModes calls onChange when rules have another mode or a new version, and once for each connection that it makes.
	WatchModes(ctx context.Context, onChange func())
}

var _ ruleStore = (*rulestore.Store)(nil)

// ruleWatch hears of changes to rules. It tells the stages at once, and keeps weir_rule_info as the rules are.
type ruleWatch struct {
	store   ruleStore
	log     *slog.Logger
	changed chan struct{} // holds one

	series  *ruleseries.Rules
	info    *ruleseries.Series[prometheus.Gauge]
	changes *ruleseries.Series[prometheus.Gauge]

	// tell must not wait for anything; follow, which is called after it, may.
	tell   func()
	follow func(ctx context.Context) error
}

func newRuleWatch(store ruleStore, log *slog.Logger, to prometheus.Registerer) (*ruleWatch, error) {
	series := ruleseries.New()
	w := &ruleWatch{
		store: store, log: log, changed: make(chan struct{}, 1), series: series,
		info: series.Gauges(prometheus.GaugeOpts{
			Name: "weir_rule_info", Help: "1 for each rule, with its owner, its mode (shadow, canary, block or disabled) and the number of its newest version.",
		}, []string{"owner", "mode", "version"}),
		// While processes disagree about a rule, this says which of them knows more.
		changes: series.Gauges(prometheus.GaugeOpts{
			Name: "weir_rule_changed_timestamp_seconds", Help: "When a rule was last changed, its version or its mode, as a Unix time.",
		}, nil),
		tell: func() {}, follow: func(context.Context) error { return nil },
	}
	if err := to.Register(series); err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return w, nil
}

// parts are the two halves of the watch: what is slow must not keep a stage from hearing of a demotion.
func (w *ruleWatch) parts() []Part {
	return []Part{
		{"watch modes", func(ctx context.Context) error {
			w.store.WatchModes(ctx, func() {
				w.tell()
				select {
				case w.changed <- struct{}{}:
				default:
				}
			})
			return nil
		}},
		{"rule info", w.run},
	}
}

// followBackoff is the pause after a stage could not follow a change, and the longest one.
const (
	followBackoff     = time.Second
	followBackoffMost = time.Minute
)

// run shows the rules anew after each change, until ctx ends. A stage that could not follow tries again after a while; the next
// change does not wait for that.
func (w *ruleWatch) run(ctx context.Context) error {
	var trouble retry.Trouble
	backoff := retry.NewBackoff(followBackoff, followBackoffMost)
	var again <-chan time.Time // nil: the stage has followed
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
			if err := retry.Do(ctx, w.log, "cannot list the rules for metrics, trying again", w.show); err != nil {
				return nil // ctx has ended
			}
		case <-again:
		}
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			trouble.Failed(w.log, "metrics of blocks do not follow the rules yet, trying again", err)
			again = time.After(backoff.Step())
			continue
		}
		trouble.Over(w.log, "metrics of blocks follow the rules again")
		again = nil
		backoff.Reset()
	}
}

func (w *ruleWatch) show(ctx context.Context) error {
	all, err := w.store.List(ctx)
	if err != nil {
		return err
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].Newest.Version.ID
	}
	w.series.Keep(ids)
	for i := range all {
		v := &all[i].Newest.Version
		w.info.Only(v.ID, v.Owner, modeLabel(all[i].Mode), strconv.Itoa(v.Number)).Set(1)
		changed := all[i].Changed
		if created := all[i].Newest.Created; created.After(changed) {
			changed = created
		}
		w.changes.Of(v.ID).Set(float64(changed.UnixMicro()) / 1e6)
	}
	return nil
}

// modeLabel is a mode as metrics name it: as people say it.
func modeLabel(m rules.Mode) string {
	if m == rules.ModeOff {
		return "disabled"
	}
	return string(m)
}
