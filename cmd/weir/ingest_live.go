package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/rules"
)

// liveSummary is what weir ingest --live says at its end.
type liveSummary struct {
	Lines   int64            `json:"lines"`
	Events  int64            `json:"events"` // acknowledged by Kafka
	Dead    map[string]int64 `json:"dead_letters"`
	TooLate int64            `json:"too_late_for_reorder,omitempty"`
	Took    float64          `json:"seconds"`
	// Late are events that are too old for every rule of the live stream: they count nowhere, unless it is read behind time.
	Late     int64 `json:"too_late_to_count"`
	lateness lateness
}

func (a *app) ingestLive(ctx context.Context, c *config, r *reading) error {
	registry := newRegistry()
	in, err := open(ctx, c, a.quietLogger(c), registry, false)
	if err != nil {
		return err
	}
	defer in.close()
	routing, err := in.enterLive(ctx, c)
	if err != nil {
		return err
	}
	decode, err := r.flags.liveDecode(routing.Format)
	if err != nil {
		return err
	}
	quiet, err := a.observeIfAsked(ctx, c, registry, in)
	if err != nil {
		return err
	}
	defer quiet()
	allow := latenessOf(routing.Rules)
	r.allow = &allow
	r.into(in.kafka.Appender(in.names.Requests), in.dead, in.requests, decode)
	if err := r.all(ctx); err != nil {
		return err
	}
	counts := r.archive.Counts()
	return a.showLive(liveSummary{
		Lines: counts.Lines, Events: r.sender.Acked(), Dead: counts.Refused, TooLate: counts.TooLate, Took: r.took.Seconds(),
		Late: r.late, lateness: allow,
	})
}

// liveDecode makes of the files' lines what the live stream reads: the lines themselves if both have one format, weir
// events if it reads those.
func (f *ingestFlags) liveDecode(stream rules.Format) (archive.Decode, error) {
	switch {
	case stream.Name == f.format && maps.Equal(stream.Map, f.fields):
		return raw(f.decoder), nil
	case stream.Name == "weir":
		return converted(f.decoder, stream.MaxEventBytes), nil
	}
	return nil, fmt.Errorf("the live stream reads format %q (map %q), the files are in %q (map %q); allowed: the stream's own format, "+
		"or any where the stream reads weir (events.format)", stream.Name, joinMap(stream.Map), f.format, joinMap(f.fields))
}

func (a *app) showLive(s liveSummary) error {
	if a.output == "json" {
		return a.json(s)
	}
	fmt.Fprintf(a.stdout, "%s sent of %s, in %s\n", plural(s.Events, "event"), plural(s.Lines, "line"), seconds(s.Took))
	a.showDead(s.Dead)
	a.showTooLate(s.TooLate)
	if s.Late > 0 {
		fmt.Fprintf(a.stdout, "%d of %s are too late for every rule and count nowhere, unless weir run is behind: they are old by %s\n"+
			"weir history late tells how many were late for which rule; weir ingest --replay NAME counts what is old\n", s.Late, plural(s.Events, "event"), s.lateness)
	}
	if s.Events == 0 && s.Lines > 0 {
		return errors.New("not one line could be read")
	}
	return nil
}

func (a *app) showDead(dead map[string]int64) {
	for _, reason := range slices.Sorted(maps.Keys(dead)) {
		fmt.Fprintf(a.stdout, "dead letters, %s: %d\n", reason, dead[reason])
	}
}

func (a *app) showTooLate(n int64) {
	if n > 0 {
		fmt.Fprintf(a.stdout, "came too late for --reorder: %s, sent all the same\n", plural(n, "event"))
	}
}

// seconds writes a duration as people read it.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}
