package main

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// sampled is what a sample of events showed, read as ROUTE reads them under a routing version.
type sampled struct {
	events  int // all that were looked at
	refused map[string]int
	example string // why the first of them was refused
	newest  traffic.Time

	good     int // events that could be read
	missing  [traffic.NumFields][traffic.NumMissingReasons]int
	timeless int
	lateness stream.Lateness // of the rules
	late     int             // events that came too late for every rule
	future   int             // later than the broker's clock by more than what is tolerated
	delays   []time.Duration // from an event's time until Kafka took it; negative: it came from the future. Ascending
	unknown  int             // events with members that the format does not define
	verdicts int             // requests that weir itself refused
	byRule   []ruleSample    // by index of the routing version's rules; of requests that weir did not refuse
	silent   int             // answered 429 without a verdict, where a rule that blocks matches
}

// ruleSample is how many of the events a rule matches, and how many of those lack each field.
type ruleSample struct {
	matched int
	lacking [traffic.NumFields]int
}

// readSample reads messages under a routing version. blocks says of a rule whether it blocks.
func readSample(messages []traffic.Message, routing *rules.Routing, blocks func(rule string) bool) (*sampled, error) {
	decoder, err := traffic.NewDecoder(routing.Format.Name, routing.Format.Map, routing.Format.MaxEventBytes)
	if err != nil {
		return nil, err
	}
	identifier, err := route.Identifier(routing)
	if err != nil {
		return nil, err
	}
	index := routing.Index()
	s := &sampled{refused: map[string]int{}, byRule: make([]ruleSample, len(routing.Rules)), lateness: stream.LatenessOf(routing.Rules)}
	var r traffic.Request
	var matched []int
	for i := range messages {
		m := &messages[i]
		s.events++
		s.newest = max(s.newest, m.Appended)
		if err := decoder.Decode(m.Value, &r); err != nil {
			s.refuse(err)
			continue
		}
		s.good++
		s.time(&r, m.Appended)
		_, missing := identifier.FromEvent(&r)
		for f, reason := range missing {
			s.missing[f][reason]++
		}
		if r.UnknownFields > 0 {
			s.unknown++
		}
		if r.Verdict.Refused() {
			s.verdicts++
			continue
		}
		matched = index.Match(matched[:0], r.Method, r.Path)
		s.match(&r, &missing, matched, routing, blocks)
	}
	slices.Sort(s.delays)
	return s, nil
}

func (s *sampled) refuse(err error) {
	reason := traffic.ReasonMalformed
	if bad := (*traffic.DecodeError)(nil); errors.As(err, &bad) {
		reason = bad.Reason
	}
	s.refused[reason]++
	if s.example == "" {
		s.example = err.Error()
	}
}

func (s *sampled) time(r *traffic.Request, appended traffic.Time) {
	if !r.HasTime {
		s.timeless++
		return
	}
	s.delays = append(s.delays, appended.Sub(r.Time))
	if s.lateness.Late(r.Time, appended) {
		s.late++
	}
	if r.Time > appended.Add(route.FutureTolerance) {
		s.future++
	}
}

func (s *sampled) match(r *traffic.Request, missing *traffic.Missing, matched []int, routing *rules.Routing, blocks func(string) bool) {
	held := false
	for _, i := range matched {
		of := &s.byRule[i]
		of.matched++
		for f, reason := range missing {
			if reason != traffic.Present {
				of.lacking[f]++
			}
		}
		held = held || blocks(routing.Rules[i].ID)
	}
	if held && r.Status == 429 {
		s.silent++
	}
}

// delay is the delay that so many of a hundred events stay below.
func (s *sampled) delay(percent int) time.Duration {
	if len(s.delays) == 0 {
		return 0
	}
	return s.delays[min(len(s.delays)-1, len(s.delays)*percent/100)]
}

// carry is how many of the readable events have an identity's field.
func (s *sampled) carry(f traffic.Field) int { return s.missing[f][traffic.Present] }

// readDeadLetter reads a record of the dead-letter topic; one that is none counts as such.
func readDeadLetter(value []byte) traffic.DeadLetter {
	var letter traffic.DeadLetter
	if err := json.Unmarshal(value, &letter); err != nil || letter.Reason == "" {
		return traffic.DeadLetter{Stage: "somebody", Reason: "wrote what is no dead letter"}
	}
	return letter
}
