package boardtest

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// truthsOfPipeline say what Pipeline health shows: what lies in Kafka's logs, PostgreSQL and Redis, and what the processes take.
func truthsOfPipeline() map[string]truth {
	return map[string]truth{
		"Events in": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"events": f.rates([]value{is(f.countRequests(anyRequest))})}
		}),
		"Oldest waiting":  atRest(func(*facts, string) panelTruth { return panelTruth{"lag": {is(0)}} }),
		"Watermark delay": atRest(func(f *facts, _ string) panelTruth { return panelTruth{"delay": {f.watermarkDelay()}} }),
		"Event to block, p99": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"p99": {f.quantileOfBlocks(0.99)}}
		}),
		"Stopped partitions": atRest(func(*facts, string) panelTruth { return panelTruth{"stopped": {is(0)}} }),
		"Processes gone":     atRest(func(*facts, string) panelTruth { return panelTruth{"gone": {is(0)}} }),
		"Dead letters": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"dead letters": {is(float64(4 * f.load.rounds))}}
		}),
		"Records by stage": atRest(func(f *facts, _ string) panelTruth {
			keyed := 0.0
			for i := range f.keyed {
				if f.within(f.keyed[i].at) {
					keyed++
				}
			}
			hits, decisions := f.countTold(f.hits, anyTold), f.countTold(f.decisions, anyTold)
			one := func(n float64, labels ...string) []value { return f.rates([]value{is(n, labels...)}) }
			return panelTruth{
				"route: events": one(f.countRequests(anyRequest)), "route: records keyed": one(keyed), "detect: events": one(keyed),
				"{{stage}}: records": f.rates([]value{is(hits, "stage", "record"), is(hits, "stage", "enforce"), is(decisions, "stage", "record-blocks")}),
			}
		}),
		"What becomes of events": atRest(func(f *facts, _ string) panelTruth {
			fates := map[string]float64{}
			for i := range f.requests {
				if f.within(f.requests[i].at) {
					fates[f.fate(&f.requests[i])]++
				}
			}
			all := panelTruth{}
			for _, legend := range []string{"routed", "no rule watches", "nothing to count by", "own refusals", "dead letters"} {
				all[legend] = f.rates([]value{is(fates[legend])})
			}
			return all
		}),
		"Hits by phase": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{phase}}": f.rates(f.by(f.hits, func(h *told) []string {
				if h.Kind != "hit" {
					return nil
				}
				return []string{"phase", h.Phase}
			}))}
		}),
		"Sources over limit": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"open episodes": {is(f.number(`SELECT count(*) FROM {}.hits_v WHERE phase IN ('open', 'update')`))}}
		}),
		"Lag in time":    atRest(func(*facts, string) panelTruth { return panelTruth{"{{stage}}": nil} }),
		"Lag in records": atRest(func(f *facts, _ string) panelTruth { return panelTruth{"{{stage}}": f.ticks()} }),
		"Watermark delay over time": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"worst": {f.watermarkDelay()}, "best": {f.watermarkDelay()}}
		}),
		"How far sources lie apart": atRest(func(*facts, string) panelTruth { return panelTruth{"apart": {between(0, mostApart)}} }),
		"Read ahead by ROUTE":       atRest(func(*facts, string) panelTruth { return panelTruth{"read ahead": {is(0)}} }),
		"Waits for order":           onStage(),
		"Uncounted events by reason": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{reason}}": f.rates(f.leftOut(func(_, reason string) []string { return []string{"reason", reason} }))}
		}),
		"Uncounted events by rule": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{rule}}": f.everywhere(f.rates(f.leftOut(func(rule, _ string) []string { return []string{"rule", rule} })))}
		}),
		"Key fields missing": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{rule}} {{field}}": f.rates(f.lacking(func(rule, field string) []string { return []string{"rule", rule, "field", field} }))}
		}),
		"Fence drops": onStage(),
		"Dead letters by stage and reason": atRest(func(f *facts, _ string) panelTruth {
			n := float64(f.load.rounds)
			sent := []value{is(n, "stage", "ingest", "reason", "malformed"), is(n, "stage", "route", "reason", "malformed"), is(2*n, "stage", "route", "reason", "bad_version")}
			return panelTruth{"{{stage}} {{reason}}": sent}
		}),
		"Losses":              onStage(),
		"Keys by partition":   atRest(func(f *facts, _ string) panelTruth { return panelTruth{"{{partition}}": f.keys()} }),
		"Share of the budget": onStage(),
		"Evictions by reason": onStage(),
		"Snapshot age": atRest(func(f *facts, _ string) panelTruth {
			var ages []value
			// A detector hears a moment later than PostgreSQL that a snapshot is written: until then the one before it counts.
			for _, row := range f.sql(`SELECT partition, coalesce(extract(epoch FROM $__timeTo()::timestamptz -
				max(written_at) FILTER (WHERE written_at <= $__timeTo()::timestamptz - interval '5 seconds')), 60)::float8 FROM {}.checkpoints GROUP BY 1`) {
				ages = append(ages, between(0, row[1].(float64)+1, "partition", strconv.FormatInt(row[0].(int64), 10)))
			}
			return panelTruth{"{{partition}}": ages}
		}),
		"Time to store a snapshot": onStage(),
		// A new installation finds nothing, for each of its partitions.
		"Partitions taken by outcome": sinceStart(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{outcome}}": {is(f.number(`SELECT count(*) FROM {}.partition_owners`), "outcome", "fresh")}}
		}),
		"Event to block": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"p50": {f.quantileOfBlocks(0.5)}, "p90": {f.quantileOfBlocks(0.9)}, "p99": {f.quantileOfBlocks(0.99)}}
		}),
		"Event to block, all of them": atRest(func(f *facts, _ string) panelTruth {
			took := f.tookToBlock()
			var buckets []value
			for _, le := range append(slices.Clone(blockBuckets), math.Inf(1)) {
				low, high := 0.0, 0.0
				for _, d := range took {
					if d.least <= le {
						high++
					}
					if d.most <= le {
						low++
					}
				}
				buckets = append(buckets, between(low, high, "le", leText(le)))
			}
			return panelTruth{"{{le}}": f.perStep(buckets)}
		}),
		// 1 - share / (1 - 0.99), as for gates: exactly 1 where no block took five seconds.
		"Error budget left": atRest(func(f *facts, _ string) panelTruth {
			least, most := f.cameLate()
			return panelTruth{"left": {between(1-2*most*100, 1-least/2*100, "namespace", f.in.schema, "slo", "event_to_block")}}
		}),
		"Decisions": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{action}}": f.rates(f.by(f.decisions, func(d *told) []string { return []string{"action", d.Action} }))}
		}),
		"Not blocked, by reason": atRest(func(f *facts, _ string) panelTruth { return panelTruth{"{{reason}}": f.withheld()} }),
		// Nothing stands in the way of a block in this test, so that nothing is asked for twice.
		"Attempts withheld, by reason":  atRest(func(f *facts, _ string) panelTruth { return panelTruth{"{{reason}}": f.withheld()} }),
		"Failures by stage":             onStage(),
		"Kafka errors":                  onStage(),
		"Time to take a batch":          onStage(),
		"Stopped partitions by stage":   onStage(),
		"Blind partitions":              onStage(),
		"Partitions that bring nothing": onStage(),
		// One process has been in each group since the start, and may have joined anew.
		"Consumer groups": sinceStart(func(f *facts, _ string) panelTruth {
			var groups []value
			for _, group := range []string{"route", "detect", "record", "record-blocks", "enforce"} {
				groups = append(groups, between(1, 5, "group", f.in.schema+"."+group))
			}
			return panelTruth{"{{group}}": groups}
		}),
		"Memory of Redis":            onStage(), // weir dev's does not say what it takes
		"Memory of Redis in bytes":   onStage(),
		"Put back by the reconciler": onStage(),
		"Not asserted":               onStage(),
		"Not published":              onStage(),
		"Size by table": atRest(func(f *facts, _ string) panelTruth {
			var sizes []value
			for table, now := range f.sizesOfTables() {
				if table == "checkpoints" {
					now *= 4 // vacuum gives back what the snapshots since have left
				}
				sizes = append(sizes, between(f.sizes[table], now, "table", table))
			}
			return panelTruth{"{{table}}": sizes}
		}),
		"Rows recorded": atRest(func(f *facts, _ string) panelTruth {
			rows := f.by(f.hits, func(h *told) []string {
				return []string{"table", map[string]string{
					"hit": "hits", "near": "hits_beside", "candidate": "hits_beside", "late": "late_sums", "uncounted": "uncounted_sums", "loss": "losses", "statistics": "rule_minutes", "running": "running",
				}[h.Kind]}
			})
			return panelTruth{"{{table}}": f.rates(append(rows, is(f.countTold(f.decisions, anyTold), "table", "block_decisions")))}
		}),
		"Grows in a day": onStage(),
		"CPU": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{instance}}": f.byProcess(func(p *process) (low, high float64) {
				cores := p.end.cpu - p.begin.cpu
				cores /= p.end.at.Sub(p.begin.at).Seconds()
				return cores*0.7 - 0.02, cores*1.3 + 0.02
			})}
		}),
		"Memory": atRest(func(f *facts, _ string) panelTruth {
			return panelTruth{"{{instance}}": f.byProcess(func(p *process) (low, high float64) { return p.end.memory * 0.7, p.end.memory * 1.3 })}
		}),
		"Goroutines": onStage(),
		"Processes": atRest(func(f *facts, _ string) panelTruth {
			started := f.byProcess(func(p *process) (low, high float64) {
				return float64(p.after.UnixMilli()) - bootTime, float64(p.before.UnixMilli()) + bootTime
			})
			for i := range started {
				maps.Copy(started[i].labels, map[string]string{"version": f.in.version, "namespace": f.in.schema, "stream": "live"})
			}
			return panelTruth{"started": started}
		}),
	}
}

// bootTime is how far off, in milliseconds, Linux tells when a process began: the time since the machine was booted, to a hundredth of a second,
// and when that was, to a second.
const bootTime = 1000 + 1000/ticksPerSecond

func anyRequest(*request) bool { return true }
func anyTold(*told) bool       { return true }

// withheld are the rates of decisions against a block, by reason.
func (f *facts) withheld() []value {
	return f.rates(f.by(f.decisions, func(d *told) []string {
		if d.Action != "withheld" {
			return nil
		}
		return []string{"reason", d.Reason}
	}))
}

// fate is what becomes of an event, in the words of the panel.
func (f *facts) fate(r *request) string {
	switch {
	case r.bad:
		return "dead letters"
	case r.Refused:
		return "own refusals"
	}
	watched := false
	for i := range f.rules {
		if !f.watches(f.rules[i].ID, r) {
			continue
		}
		if watched = true; f.keyOf(f.rules[i].ID, r) != "" {
			return "routed"
		}
	}
	if watched {
		return "nothing to count by"
	}
	return "no rule watches"
}

// watermarkDelay is that of an installation at rest: its clocks tick each second.
func (f *facts) watermarkDelay() value { return between(idleMargin, mostDelay) }

// ticks are what may wait for a stage at rest.
func (f *facts) ticks() []value { return []value{between(0, mostTicks, "stage", "detect")} }

// keys are the windows that partitions hold: those of the trailers, which look back ten minutes, and at most one for each rule and
// source that was counted.
func (f *facts) keys() []value {
	type key struct {
		partition, rule  int
		ip, device, user string
	}
	held := map[key]bool{}
	for i := range f.keyed {
		k := &f.keyed[i]
		for _, rule := range k.Rules {
			held[key{k.partition, rule, k.IP.String(), k.Device, k.User}] = true
		}
	}
	counts := make([]value, 8)
	for p := range counts {
		counts[p] = between(0, 0, "partition", strconv.Itoa(p))
	}
	for of := range held {
		counts[of.partition].high++
		if strings.HasPrefix(of.ip, "198.51.100.") {
			counts[of.partition].low++
			counts[of.partition].high += 2 // windows of warnings and of candidates, which their rules may have beside
		}
	}
	return counts
}
