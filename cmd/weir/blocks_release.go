package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/traffic"
)

// releaseFlags are what weir blocks release is told beside rule and source.
type releaseFlags struct {
	actFlags
	wait  time.Duration
	force bool
}

func blocksRelease(a *app) *cobra.Command {
	var f releaseFlags
	c := &cobra.Command{
		Use:   "release RULE SOURCE…",
		Short: "Release a blocked source from a rule",
		Long: `Release a blocked source from a rule: its block goes, at every gate, and no hit from before the release blocks it again. The
release goes to ENFORCE by the hits topic, in order with the hits of the block, and is audited.

SOURCE is what weir blocks list shows: FIELD=VALUE for each field of the rule's block key. An address without its prefix
gets the one of the rule; a value above 64 bytes may be given as it is or as its digest. A subject as JSON output has it
(ip=192.0.2.1%2F32&device=tv-7) is taken as well.

Fields that are not those of the rule's block key are refused, and where nothing is blocked, nothing is released and the exit
code is 1; in both cases the blocks that contain what was named are listed with the commands that release them. --force
releases where no block is seen: no hit from before the release blocks the source.`,
		Example: `  weir blocks release guest-token-flood ip=192.0.2.1 device=tv-7 --reason "ticket 4711"
  weir blocks release login-burst ip=2001:db8::/64 --reason "an office" --output json`,
		Args: cobra.MinimumNArgs(2),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				rule, err := s.named(ctx, args[0])
				if err != nil {
					return err
				}
				keys := blockKeys(&rule)
				if len(keys) == 0 {
					return fmt.Errorf("rule %s has no block in any version, so it blocks nobody", args[0])
				}
				source, fits, err := releasedSubject(keys, args[1:])
				if err != nil {
					return err
				}
				r, err := service.OpenRedis(s.config)
				if err != nil {
					return err
				}
				defer func() { _ = r.Close() }()
				l := releasing{
					app: a, store: s, redis: r, flags: f, keys: keys,
					report: releaseReport{Rule: args[0], Subject: source.Stored(), Offers: []releaseOffer{}},
				}
				return l.run(ctx, fits)
			})
		}),
	}
	f.register(c, a.environ)
	usage.DurationFlag(c, &f.wait, "wait", 10*time.Second, "how long to wait until ENFORCE has acted; 0: do not wait")
	c.Flags().BoolVar(&f.force, "force", false, "release although no block is seen")
	return c
}

// releasedSubject reads the words of SOURCE. Their fields decide which of the keys gives an address its prefix length; fits
// says whether a key has exactly these fields.
func releasedSubject(keys [][]traffic.KeyField, words []string) (source traffic.Subject, fits bool, err error) {
	for _, k := range keys {
		v4, v6 := prefixLengths(k)
		if source, err = subject.Read(words, v4, v6); err != nil || sameFields(source, k) {
			return source, err == nil, err
		}
	}
	v4, v6 := prefixLengths(keys[0])
	source, err = subject.Read(words, v4, v6)
	return source, false, err
}

// blockKeys are the keys of a rule's blocks, of the newest version first: blocks of older ones may still stand.
func blockKeys(rule *rulestore.Rule) [][]traffic.KeyField {
	var keys [][]traffic.KeyField
	for i := range rule.Versions {
		if b := rule.Versions[i].Version.Block; b != nil {
			keys = append(keys, b.Key)
		}
	}
	return keys
}

func prefixLengths(key []traffic.KeyField) (v4, v6 uint8) {
	for _, k := range key {
		if k.Field == traffic.FieldIP {
			return k.V4, k.V6
		}
	}
	return traffic.DefaultV4, traffic.DefaultV6
}

func sameFields(source traffic.Subject, key []traffic.KeyField) bool {
	values, err := source.Values()
	if err != nil || len(values) != len(key) {
		return false
	}
	for _, v := range values {
		if !slices.ContainsFunc(key, func(k traffic.KeyField) bool { return k.Field.String() == v.Field }) {
			return false
		}
	}
	return true
}

// releaseReport is what weir blocks release says with --output json.
type releaseReport struct {
	Rule    string          `json:"rule"`
	Subject traffic.Subject `json:"subject"`
	Release string          `json:"release,omitempty"` // id of the record that releases; absent: nothing was released
	Done    bool            `json:"done"`              // ENFORCE has acted on it
	Blocked *bool           `json:"blocked"`           // whether a block stood; null: it is not known
	Problem string          `json:"problem,omitempty"`
	// Offers are the blocks that contain what was named, where that is not one of them. OffersCut: there may be more.
	Offers    []releaseOffer `json:"offers"`
	OffersCut bool           `json:"offers_cut,omitempty"`
}

type releaseOffer struct {
	Subject traffic.Subject `json:"subject"`
	Until   traffic.Time    `json:"until"`
	InForce bool            `json:"in_force"`
	Command string          `json:"command"`
}

// releasing is one release.
type releasing struct {
	*app
	store  *store
	redis  *blocklist.Store
	flags  releaseFlags
	keys   [][]traffic.KeyField // of the rule's blocks
	report releaseReport
}

func (l *releasing) run(ctx context.Context, fits bool) error {
	away := service.WaitRedis(ctx, l.redis, service.AnswerTimeout, l.store.log)
	if !fits {
		return l.misshapen(ctx, away)
	}
	block, err := l.look(ctx, away)
	switch {
	case err != nil: // the way out stays open while Redis cannot be asked
		fmt.Fprintf(l.Stderr, "weir: %v; whether a block stands is not known, and the release is written all the same\n", err)
	case block == nil && !l.flags.force:
		return l.nothing()
	}
	l.report.Offers, l.report.OffersCut = []releaseOffer{}, false // it is released, whatever else is blocked
	h, err := l.append(ctx)
	if err != nil {
		return err
	}
	if away != nil || l.flags.wait <= 0 {
		return l.say(block)
	}
	bounded, cancel := context.WithTimeout(ctx, l.flags.wait)
	defer cancel()
	tombstone, err := l.redis.WaitReleased(bounded, h)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the release is in Kafka and will take effect, but ENFORCE has not acted within %s: is weir run --stages enforce running? (%w)",
			l.flags.wait, err)
	}
	if err != nil {
		return err
	}
	stood := tombstone.Stood()
	l.report.Done, l.report.Blocked = true, &stood
	return l.say(block)
}

// look finds the block of the named source or, where none stands under that name, the blocks that contain it. Blocks of an
// older weir, which has written long values whole, are found in the second way.
func (l *releasing) look(ctx context.Context, away error) (*blocklist.Block, error) {
	if away != nil {
		return nil, away
	}
	block, _, err := l.redis.Get(ctx, l.report.Subject, l.report.Rule)
	if err != nil {
		return nil, err
	}
	if block == nil {
		block = l.offer(ctx, l.report.Subject)
	}
	if address := withFields(l.report.Subject, []traffic.KeyField{{Field: traffic.FieldIP}}); block == nil && len(l.report.Offers) == 0 &&
		address != l.report.Subject {
		l.offer(ctx, address)
	}
	stands := block != nil
	l.report.Blocked = &stands
	return block, nil
}

// misshapen refuses a source whose fields are not those of the rule's blocks.
func (l *releasing) misshapen(ctx context.Context, away error) error {
	var allowed []string
	for _, k := range l.keys {
		if text := fieldsOf(k); !slices.Contains(allowed, text) {
			allowed = append(allowed, text)
		}
	}
	values, err := l.report.Subject.Values()
	if err != nil {
		return err
	}
	got := make([]string, len(values))
	for i, v := range values {
		got[i] = v.Field
	}
	l.report.Problem = fmt.Sprintf("SOURCE: got %s; allowed: %s, as the blocks of rule %s are keyed; nothing was released", strings.Join(got, ", "),
		strings.Join(allowed, " or "), l.report.Rule)
	if away == nil {
		l.offer(ctx, withFields(l.report.Subject, l.keys[0]))
	}
	return l.refuse(&usage.Error{Err: errors.New(l.report.Problem)})
}

// fieldsOf writes a key: ip, device.
func fieldsOf(key []traffic.KeyField) string {
	names := make([]string, len(key))
	for i, k := range key {
		names[i] = k.Field.String()
	}
	return strings.Join(names, ", ")
}

// nothing says that no block stands for the source.
func (l *releasing) nothing() error {
	l.report.Problem = fmt.Sprintf("nothing was blocked: no block of rule %s stands for %s, and nothing was released (weir blocks list --rule %s lists its blocks; "+
		"--force releases from what is on its way)", l.report.Rule, subject.Text(l.report.Subject), l.report.Rule)
	return l.refuse(errors.New(l.report.Problem))
}

// withFields is the subject of those values of source whose fields key has; empty where there is none.
func withFields(source traffic.Subject, key []traffic.KeyField) traffic.Subject {
	var kept []string
	for value := range strings.SplitSeq(string(source), "&") {
		field, _, _ := strings.Cut(value, "=")
		if slices.ContainsFunc(key, func(k traffic.KeyField) bool { return k.Field.String() == field }) {
			kept = append(kept, value)
		}
	}
	return traffic.Subject(strings.Join(kept, "&"))
}

// offerTimeout is how long blocks are looked for that contain what was named.
const offerTimeout = 5 * time.Second

// offer gathers the blocks of the rule that contain source. One of source alone is given back, and is no offer.
func (l *releasing) offer(ctx context.Context, source traffic.Subject) *blocklist.Block {
	if source == "" {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	found, err := l.redis.Containing(bounded, service.Now(), blocklist.Containing{Rule: l.report.Rule, Subject: source})
	if err != nil {
		fmt.Fprintf(l.Stderr, "weir: blocks that contain %s: %v\n", subject.Text(source), err)
		return nil
	}
	l.report.OffersCut = found.Cut
	for _, item := range found.Items {
		if item.Subject.Stored() == l.report.Subject {
			l.report.Offers, l.report.OffersCut = []releaseOffer{}, false
			return item.Block
		}
		l.report.Offers = append(l.report.Offers, releaseOffer{
			Subject: item.Subject, Until: item.Block.Until, InForce: item.InForce, Command: releaseCommand(item.Rule, item.Subject, l.flags.reason),
		})
	}
	return nil
}

// releaseCommand is what releases a block, to be pasted.
func releaseCommand(rule string, source traffic.Subject, reason string) string {
	command := "weir blocks release " + rule + " " + subject.Text(source)
	if reason != "" {
		command += " --reason " + subject.Quoted(reason)
	}
	return command
}

// refuse reports why nothing was released, and what could be.
func (l *releasing) refuse(cause error) error {
	if l.Format == "json" {
		return errors.Join(l.WriteJSON(l.report), cause)
	}
	if len(l.report.Offers) > 0 {
		if err := terminal.List(&l.Output, l.report.Offers, []string{"UNTIL", "IN FORCE", "TO RELEASE IT"}, func(o releaseOffer) []string {
			return []string{terminal.Time(o.Until), fmt.Sprint(o.InForce), o.Command}
		}); err != nil {
			return err
		}
	}
	if l.report.OffersCut {
		fmt.Fprintf(l.Stderr, "weir: the first %d; there may be more: weir blocks list --rule %s lists all\n", len(l.report.Offers), l.report.Rule)
	}
	return cause
}

// append appends the release to the hits topic, where the hits of its block are.
func (l *releasing) append(ctx context.Context) (*detectors.Hit, error) {
	h, err := blocklist.NewRelease(l.report.Subject, l.report.Rule, l.flags.by, l.flags.reason, service.Now())
	if err != nil {
		return nil, err
	}
	k, err := service.OpenKafka(l.store.config, l.store.log, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = k.Close() }()
	if err := service.WaitKafka(ctx, k, service.AnswerTimeout); err != nil {
		return nil, err
	}
	if err := service.AppendRelease(ctx, k, l.store.config.Namespace, &h); err != nil {
		return nil, err
	}
	l.report.Release = h.ID
	return &h, nil
}

// say reports what was released. block is what was seen before, nil for nothing.
func (l *releasing) say(block *blocklist.Block) error {
	gone := l.report.Done && block != nil && !*l.report.Blocked // it ended between the look and the release
	if gone {
		l.report.Problem = "nothing was blocked any more: the block had ended by itself"
	}
	if l.Format == "json" {
		return l.WriteJSON(l.report)
	}
	state := "released"
	if !l.report.Done {
		state = "to be released"
	}
	text := fmt.Sprintf("%s: %s from rule %s", subject.Text(l.report.Subject), state, l.report.Rule)
	switch {
	case gone:
		text += "; " + l.report.Problem
	case block != nil:
		text += ", before the end of its block at " + terminal.Time(block.Until)
	case l.report.Blocked != nil:
		text += "; nothing was blocked: only hits from before now are forgiven"
	}
	_, err := fmt.Fprintln(l.Stdout, text)
	return err
}
