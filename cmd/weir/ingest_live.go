package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest"
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

func (a *app) ingestLive(ctx context.Context, c *config.Config, r *reading) error {
	registry := service.NewRegistry(readBuildVersion().Version)
	in, err := service.Open(ctx, c, a.quietLogger(c), registry, false)
	if err != nil {
		return err
	}
	defer in.Close()
	routing, err := in.EnterLive(ctx, c)
	if err != nil {
		return err
	}
	decode, err := r.flags.liveDecode(routing.Format)
	if err != nil {
		return err
	}
	quiet, err := service.ServeHealthIfAsked(ctx, c, registry, in)
	if err != nil {
		return err
	}
	defer quiet()
	allow := latenessOf(routing.Rules)
	r.allow = &allow
	r.into(in.Kafka.Appender(in.Names.Requests), in.DeadLetters, in.RequestsPartitions, decode)
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
func (f *ingestFlags) liveDecode(stream rules.Format) (ingest.ArchiveDecode, error) {
	switch {
	case stream.Name == f.format && maps.Equal(stream.Map, f.fields):
		return raw(f.decoder), nil
	case stream.Name == "weir":
		return converted(f.decoder, stream.MaxEventBytes), nil
	}
	return nil, fmt.Errorf("the live stream reads format %q (map %q), the files are in %q (map %q); allowed: the stream's own format, "+
		"or any where the stream reads weir (events.format)", stream.Name, config.JoinMap(stream.Map), f.format, config.JoinMap(f.fields))
}

func (a *app) showLive(s liveSummary) error {
	if a.Format == "json" {
		return a.WriteJSON(s)
	}
	fmt.Fprintf(a.Stdout, "%s sent of %s, in %s\n", terminal.Plural(s.Events, "event"), terminal.Plural(s.Lines, "line"), terminal.Seconds(s.Took))
	a.showDead(s.Dead)
	a.showTooLate(s.TooLate)
	if s.Late > 0 {
		fmt.Fprintf(a.Stdout, "%d of %s are too late for every rule and count nowhere, unless weir run is behind: they are old by %s\n"+
			"weir history late tells how many were late for which rule; weir ingest --replay NAME counts what is old\n", s.Late, terminal.Plural(s.Events, "event"), s.lateness)
	}
	if s.Events == 0 && s.Lines > 0 {
		return errors.New("not one line could be read")
	}
	return nil
}

func (a *app) showDead(dead map[string]int64) {
	for _, reason := range slices.Sorted(maps.Keys(dead)) {
		fmt.Fprintf(a.Stdout, "dead letters, %s: %d\n", reason, dead[reason])
	}
}

func (a *app) showTooLate(n int64) {
	if n > 0 {
		fmt.Fprintf(a.Stdout, "came too late for --reorder: %s, sent all the same\n", terminal.Plural(n, "event"))
	}
}
