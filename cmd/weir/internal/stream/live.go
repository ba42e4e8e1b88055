package stream

import (
	"bytes"
	"fmt"
	"maps"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// LiveSummary is what weir ingest --live says at its end.
type LiveSummary struct {
	Lines   int64            `json:"lines"`
	Events  int64            `json:"events"` // acknowledged by Kafka
	Dead    map[string]int64 `json:"dead_letters"`
	Broken  []archive.Break  `json:"broken,omitempty"` // files that were not read to their end
	TooLate int64            `json:"too_late_for_reorder,omitempty"`
	Took    float64          `json:"seconds"`
	// Late are events that are too old for every rule of the live stream: they count nowhere, unless it is read behind time.
	Late     int64    `json:"too_late_to_count"`
	Lateness Lateness `json:"-"`
}

// ToLive says that the events go into the live stream of an installation, as its routing version reads them.
func (r *Reading) ToLive(in *service.Installation, routing *rules.Routing) error {
	decode, err := r.liveDecode(&routing.Format)
	if err != nil {
		return err
	}
	allow := LatenessOf(routing.Rules, time.Duration(in.Config.Detect.IdleMargin))
	r.allow = &allow
	r.into(in.Kafka.Appender(in.Names.Requests), in.DeadLetters, in.RequestsPartitions, decode, false)
	return nil
}

// liveDecode returns the conversion of lines into events of the live stream: none if both have one format, into weir events if
// the stream reads those.
func (r *Reading) liveDecode(stream *rules.Format) (archive.Decode, error) {
	switch {
	case stream.Name == r.files.Format && maps.Equal(stream.Map, r.files.Fields):
		return raw(r.files.Decoder), nil
	case stream.Name == "weir":
		return converted(r.files.Decoder, stream.MaxEventBytes), nil
	}
	return nil, fmt.Errorf("the live stream reads format %q (map %q), the files are in %q (map %q); allowed: the stream's own format, "+
		"or any where the stream reads weir (events.format)", stream.Name, config.JoinMap(stream.Map), r.files.Format, config.JoinMap(r.files.Fields))
}

// LiveSummary is what came of a reading that went to the live stream.
func (r *Reading) LiveSummary() LiveSummary {
	counts := r.archive.Counts()
	return LiveSummary{
		Lines: counts.Lines, Events: r.sender.Acked(), Dead: counts.Refused, Broken: counts.Broken, TooLate: counts.TooLate, Took: r.took.Seconds(),
		Late: r.late, Lateness: *r.allow,
	}
}

// replayDecode gives weir events as they are and converts everything else.
func (r *Reading) replayDecode(limit int) archive.Decode {
	if r.files.Format == format.Weir {
		return raw(r.files.Decoder)
	}
	return converted(r.files.Decoder, limit)
}

// raw gives lines to Kafka as they are.
func raw(d format.Decoder) archive.Decode {
	return func(line []byte, r *traffic.Request) ([]byte, error) {
		if err := d.Decode(line, r); err != nil {
			return nil, err
		}
		return bytes.Clone(line), nil
	}
}

// converted gives them as weir events, which is what the stream reads. limit bounds what comes out.
func converted(d format.Decoder, limit int) archive.Decode {
	return func(line []byte, r *traffic.Request) ([]byte, error) {
		if err := d.Decode(line, r); err != nil {
			return nil, err
		}
		value := format.AppendEvent(make([]byte, 0, len(line)+256), r)
		if len(value) > limit {
			return nil, &format.DecodeError{
				Reason: format.ReasonOversized, Detail: fmt.Sprintf("got %d bytes as a weir event, allowed: at most %d", len(value), limit),
			}
		}
		return value, nil
	}
}

// Lateness is the age from which on an event is too late for every rule of a live stream when it arrives. An event can be late
// earlier, where its source partition has a newer one that is ahead of the clock.
type Lateness struct {
	rules    int
	greatest time.Duration // of the rules
	margin   time.Duration // by which an idle partition's progress stays behind the clock
}

// LatenessOf is the allowance of a stream with these rules and the configured detect.idle_margin.
func LatenessOf(all []rules.Version, idleMargin time.Duration) Lateness {
	l := Lateness{rules: len(all), margin: idleMargin}
	for i := range all {
		l.greatest = max(l.greatest, all[i].Lateness)
	}
	return l
}

// Late reports whether an event of this time that came then is late for every rule.
func (l Lateness) Late(event, came traffic.Time) bool { return came.Sub(event) > l.allowed() }

func (l Lateness) allowed() time.Duration { return l.greatest + l.margin }

// String says where the allowance comes from.
func (l Lateness) String() string {
	return fmt.Sprintf("more than %s: the greatest lateness of %s, %s, and a margin of %s", duration.Format(l.allowed()),
		plural.Of(l.rules, "rule"), duration.Format(l.greatest), duration.Format(l.margin))
}
