// Package explore is the questions that people ask of history: which episodes, by what, of whom, when, and all about one of them. Command
// line, API and pages ask here, so that they answer alike. A name that does not exist is an error that says which one is near: an empty
// answer would look like "nothing happened".
package explore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Explorer answers questions. It is safe for concurrent use.
type Explorer struct{ store *history.Store }

// New returns an Explorer of a store.
func New(store *history.Store) *Explorer { return &Explorer{store} }

// Filter selects episodes, and what belongs to them. Its zero value selects all hits of the live stream; of each member an empty value
// selects everything.
type Filter struct {
	Stream string         `json:"stream,omitempty"` // empty: the live one; replay/NAME
	Kind   detectors.Kind `json:"kind,omitempty"`   // empty: hit; near, candidate
	Rule   string         `json:"rule,omitempty"`
	Owner  string         `json:"owner,omitempty"`  // of the rule, now
	Mode   rules.Mode     `json:"mode,omitempty"`   // of the rule, now
	Source string         `json:"source,omitempty"` // in any spelling that history.ParseSource reads
	Field  string         `json:"field,omitempty"`  // ip, device, user, api_key, session: only sources that have it
	State  history.State  `json:"state,omitempty"`  // running, closed
	// Merged adds episodes that a late event joined to others, to a list of episodes; they are no offences of their own.
	Merged bool `json:"merged,omitempty"`
	// Since and Until bound the time: episodes that were over at some time from Since on and before Until. 0: no bound.
	Since traffic.Time `json:"since,omitempty"`
	Until traffic.Time `json:"until,omitempty"`
	// Counted has the sources of sums counted, however many there are and however long that takes: none is an estimate.
	Counted bool `json:"-"`
	// NoSources is for who does not look at the sources of sums by rule, hour and day, which take longer than all else: they may be 0.
	NoSources bool `json:"-"`
}

// Page is a part of a list.
type Page struct {
	Limit  int    // rows; 0: DefaultLimit, MostLimit at most
	Cursor string // Next of the page before; empty: the first page
}

const (
	// DefaultLimit is how many rows a page has where nobody says.
	DefaultLimit = 100
	// MostLimit is how many rows a page has at most.
	MostLimit = 1000
)

// countCap is where counting stops: each row that is counted is looked at, and a page is waited for.
const countCap = 10_001

// Total is how many rows there are on all pages. Beyond 10,000 nobody counts: More says that there are more than N.
type Total struct {
	N    int64 `json:"n"`
	More bool  `json:"more,omitempty"`
}

// String is the number, or "more than 10000".
func (t Total) String() string {
	if t.More {
		return fmt.Sprintf("more than %d", t.N)
	}
	return fmt.Sprint(t.N)
}

func newTotal(counted int64) Total {
	if counted >= countCap {
		return Total{N: countCap - 1, More: true}
	}
	return Total{N: counted}
}

// BadFilterError is a member of a question that cannot be meant.
type BadFilterError struct {
	Field   string // rule, source, since, cursor, …
	Got     string
	Allowed string
	Near    string // what was probably meant; may be empty
}

func (e *BadFilterError) Error() string {
	text := fmt.Sprintf("%s: got %q; allowed: %s", e.Field, e.Got, e.Allowed)
	if e.Near != "" {
		text += "; did you mean " + e.Near + "?"
	}
	return text
}

// UnknownError is a name that nothing has.
type UnknownError struct {
	Thing string // rule, owner, replay
	Got   string
	Known []string
	Near  string // the name that was probably meant; may be empty
}

func (e *UnknownError) Error() string {
	text := fmt.Sprintf("there is no %s %q", e.Thing, e.Got)
	const few = 5
	switch {
	case e.Near != "":
		return text + "; did you mean " + e.Near + "?"
	case len(e.Known) == 0:
		return text + ", and no other"
	case len(e.Known) > few:
		return fmt.Sprintf("%s; known: %s and %d more", text, strings.Join(e.Known[:few], ", "), len(e.Known)-few)
	}
	return text + "; known: " + strings.Join(e.Known, ", ")
}

func unknown(thing, got string, known []string) error {
	return &UnknownError{Thing: thing, Got: got, Known: known, Near: rules.Nearest(got, known)}
}

// oneOf refuses what is not among those allowed; empty stands for no choice.
func oneOf(field, got string, allowed ...string) error {
	if got == "" || slices.Contains(allowed, got) {
		return nil
	}
	return &BadFilterError{Field: field, Got: got, Allowed: strings.Join(allowed, ", "), Near: rules.Nearest(got, allowed)}
}

// Fields are the names of the fields that Filter.Field may be.
func Fields() []string {
	var names []string
	for f := traffic.Field(0); f < traffic.NumFields; f++ {
		names = append(names, f.String())
	}
	return names
}

// Kinds are what Filter.Kind may be.
func Kinds() []string {
	return []string{string(detectors.KindHit), string(detectors.KindNear), string(detectors.KindCandidate)}
}

// States are what Filter.State may be.
func States() []string { return []string{string(history.StateRunning), string(history.StateClosed)} }

// Modes are what Filter.Mode may be.
func Modes() []string {
	return []string{string(rules.ModeOff), string(rules.ModeShadow), string(rules.ModeCanary), string(rules.ModeBlock)}
}

// known is what is said of a rule now.
type known struct {
	rule, owner string
	mode        rules.Mode
	fell        string // why its canary fell back; empty: it did not
}

// knownRules lists the rules that a stream has or had.
func knownRules(ctx context.Context, store *history.Store) ([]known, error) {
	rows, err := store.Query(ctx, "SELECT rule, coalesce(owner, ''), mode, CASE WHEN fell_back THEN mode_reason ELSE '' END FROM rules_v ORDER BY rule")
	if err != nil {
		return nil, store.Fail("listing rules and their owners", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k known, err error) {
		return k, row.Scan(&k.rule, &k.owner, &k.mode, &k.fell)
	})
	if err != nil {
		return nil, store.Fail("listing rules and their owners", err)
	}
	return all, nil
}

// check refuses what no row can match, with the name that is near. It reads the source.
func (x *Explorer) check(ctx context.Context, f *Filter) (*history.Source, error) {
	for _, c := range []struct {
		field, got string
		allowed    []string
	}{
		{"kind", string(f.Kind), Kinds()}, {"field", f.Field, Fields()}, {"state", string(f.State), States()},
		{"mode", string(f.Mode), Modes()},
	} {
		if err := oneOf(c.field, c.got, c.allowed...); err != nil {
			return nil, err
		}
	}
	if f.Since != 0 && f.Until != 0 && f.Since >= f.Until {
		return nil, &BadFilterError{Field: "until", Got: f.Until.String(), Allowed: "a time after since, " + f.Since.String()}
	}
	if f.Stream == "" {
		f.Stream = history.Live
	}
	if err := x.checkNames(ctx, f); err != nil {
		return nil, err
	}
	if f.Source == "" {
		return nil, nil
	}
	source, err := history.ParseSource(f.Source)
	if err != nil {
		return nil, &BadFilterError{Field: "source", Got: f.Source, Allowed: strings.TrimPrefix(err.Error(), "source ")}
	}
	return &source, nil
}

func (x *Explorer) checkNames(ctx context.Context, f *Filter) error {
	if f.Stream != history.Live {
		all, err := x.store.Streams.List(ctx)
		if err != nil {
			return err
		}
		var names []string
		for i := range all {
			if name, ok := ingest.Stream(all[i].Name).Replay(); ok {
				names = append(names, name)
			}
		}
		name, _ := ingest.Stream(f.Stream).Replay()
		if !slices.Contains(names, name) {
			return unknown("replay", name, names)
		}
	}
	if f.Rule == "" {
		return nil
	}
	names, err := x.store.Rules.Names(ctx, f.Stream)
	if err != nil {
		return err
	}
	if !slices.Contains(names, f.Rule) {
		return unknown("rule", f.Rule, names)
	}
	return nil
}

// rulesOf are the rules that a filter's owner and mode leave; nil: all.
func (x *Explorer) rulesOf(ctx context.Context, f *Filter) ([]string, error) {
	if f.Owner == "" && f.Mode == "" {
		return nil, nil
	}
	all, err := knownRules(ctx, x.store)
	if err != nil {
		return nil, err
	}
	names, owners := []string{}, []string{}
	for _, k := range all {
		if !slices.Contains(owners, k.owner) {
			owners = append(owners, k.owner)
		}
		if (f.Owner == "" || k.owner == f.Owner) && (f.Mode == "" || k.mode == f.Mode) {
			names = append(names, k.rule)
		}
	}
	slices.Sort(owners)
	if f.Owner != "" && !slices.Contains(owners, f.Owner) {
		return nil, unknown("owner", f.Owner, owners)
	}
	return names, nil
}

// hitQuery is a filter as a query of episodes.
func (x *Explorer) hitQuery(ctx context.Context, f *Filter) (history.HitQuery, error) {
	source, err := x.check(ctx, f)
	if err != nil {
		return history.HitQuery{}, err
	}
	names, err := x.rulesOf(ctx, f)
	return history.HitQuery{
		Stream: f.Stream, Rule: f.Rule, Rules: names, Source: source, Field: f.Field, Kind: f.Kind, State: f.State, Since: f.Since, Until: f.Until,
	}, err
}
