package backtest

// naiveRule, naiveRequest and naiveBlock say what a block does in the plainest words, for a log in order of time. They share
// nothing with the package, and know only the sliding window over events.
type naiveRule struct {
	limit                          int
	window, lateness, ttl, minutes int64 // minutes: the least time between two updates of a hit
	maxLag                         int64
	onHit                          bool
	key, block                     []string
}

type naiveRequest struct {
	at            int64
	fields        map[string]string
	watched, held bool // the rule watches it; its block holds such requests
	limit         *int // of its tier; nil: the rule's
	least         int  // a limit of a tier of which nobody knows whether it has it: the greater one counts
}

type naiveAnswer struct{ refused, watched, held, firstRefused int64 } // watched: of those refused

type naiveEpisode struct {
	first, last int64
	sent, over  map[string]int64 // by block: the last over event told, the last one
}

type naiveBlock struct{ since, until int64 }

func naiveName(q naiveRequest, fields []string) string {
	name := ""
	for _, f := range fields {
		if q.fields[f] == "" {
			return ""
		}
		name += f + "=" + q.fields[f] + ";"
	}
	return name
}

// judge goes through the log once. Of each source it keeps every request that was let through.
func (r *naiveRule) judge(log []naiveRequest) naiveAnswer {
	out := naiveAnswer{firstRefused: -1}
	through := map[string][]int64{}
	running := map[string][]*naiveEpisode{}
	blocks := map[string]naiveBlock{}
	for _, q := range log {
		r.close(q.at, running, blocks)
		who := naiveName(q, r.block)
		if b, known := blocks[who]; known && q.held && who != "" && b.since <= q.at && q.at < b.until {
			out.refused++
			if q.watched {
				out.watched++
			}
			if out.firstRefused < 0 {
				out.firstRefused = q.at
			}
			continue
		}
		source := naiveName(q, r.key)
		if source == "" || !q.watched {
			continue
		}
		through[source] = append(through[source], q.at)
		inWindow := 0
		for _, at := range through[source] {
			if at > q.at-r.window {
				inWindow++
			}
		}
		limit := r.limit
		if q.limit != nil {
			limit = *q.limit
		}
		limit = max(limit, q.least)
		if inWindow <= limit {
			continue
		}
		var e *naiveEpisode
		for _, x := range running[source] {
			if q.at < x.last+r.window {
				e = x
			}
		}
		if e == nil {
			e = &naiveEpisode{first: q.at, sent: map[string]int64{}, over: map[string]int64{}}
			running[source] = append(running[source], e)
		}
		e.last = q.at
		e.over[who] = q.at
		for of, last := range e.over { // what others did since they were told of is told with it
			sent, told := e.sent[of]
			if told && (last <= sent || q.at < sent+r.minutes) {
				continue
			}
			e.sent[of] = q.at
			until := e.first + r.ttl
			if r.onHit {
				until = last + r.ttl
			}
			if of == "" || until <= q.at || q.at-last > r.maxLag {
				continue
			}
			if b, known := blocks[of]; known && b.until > q.at {
				blocks[of] = naiveBlock{b.since, max(b.until, until)}
			} else {
				blocks[of] = naiveBlock{q.at, until}
			}
		}
	}
	out.held = int64(len(blocks))
	return out
}

// close ends the episodes that no request can lengthen any more: a block that stands when that is told lasts from their
// last over event, unless that is too old. It is told with the next request of anybody, or of a silent stream a minute
// and a second later.
func (r *naiveRule) close(now int64, running map[string][]*naiveEpisode, blocks map[string]naiveBlock) {
	for source, list := range running {
		var kept []*naiveEpisode
		for _, e := range list {
			if now < e.last+r.window+r.lateness {
				kept = append(kept, e)
				continue
			}
			told, old := min(now, e.last+r.window+r.lateness+61), r.maxLag+r.window+r.lateness
			if len(r.block) > len(r.key) { // several blocks
				old += r.minutes
			}
			for who, last := range e.over {
				b := blocks[who]
				if r.onHit && who != "" && b.until > told && told-last <= old && last+r.ttl > b.until {
					blocks[who] = naiveBlock{b.since, last + r.ttl}
				}
			}
		}
		running[source] = kept
	}
}
