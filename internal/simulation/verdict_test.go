package simulation

import (
	"errors"
	"slices"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/rules"
)

// verdict is everything that is wrong with a world that has come to its end.
func (w *world) verdict() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judgeLetters()
	key := secret()
	s := judge.Stream{
		Secret: key[:], Generation: generation, Requests: w.events, Versions: map[int64][]judge.Rule{}, Keyed: make([][]judge.Record, len(w.keyed.parts)),
		Stall: w.stall.Microseconds(), Tight: w.budget > 0,
	}
	for _, r := range w.routings {
		s.Versions[r.Number] = asJudged(r)
	}
	for q := range w.keyed.parts {
		for _, r := range w.keyed.parts[q].records {
			s.Keyed[q] = append(s.Keyed[q], judge.Record{Appended: int64(r.at), Value: r.value})
		}
	}
	log, readings := s.Log(w.lossy)
	w.seen.Seen, w.seen.refusedCommits, w.seen.generations = log.Seen, w.routers.refused, w.routers.generation
	w.wrong = append(w.wrong, log.Wrong...)
	if len(w.wrong) == 0 {
		w.judgeHalts(readings)
	}
	if len(w.wrong) > 0 || log.Seen.Holes > 0 {
		return w.wrong // what follows from a hole is not to be judged
	}
	records := w.judgeHits()
	rows, late := w.recorded()
	h := s.History(readings, rows, late)
	w.wrong = append(w.wrong, h.Wrong...)
	w.seen.Episodes, w.seen.Disordered, w.seen.Late, w.seen.Grouped = h.Seen.Episodes, h.Seen.Disordered, h.Seen.Late, h.Seen.Grouped
	b := w.enforcement(records).Blocks()
	w.wrong = append(w.wrong, b.Wrong...)
	w.seen.Blocks, w.seen.Tombstones = b.Seen.Blocks, b.Seen.Tombstones
	return w.wrong
}

// announcements is what is wrong with the commits of routers. It stands beside verdict, which says what comes of them: that
// a mutation is seen in the commits proves nothing for the counts.
func (w *world) announcements() []string {
	return append(judge.Commits(w.committed).Wrong, w.unread...)
}

func (w *world) judgeLetters() {
	for p := range w.events {
		for o := range w.events[p] {
			if w.letters[[2]int64{int64(p), int64(o)}] != w.events[p][o].Malformed {
				w.say("event %d/%d: dead letter: want %v", p, o, w.events[p][o].Malformed)
			}
		}
	}
}

// judgeHalts asks that a detector stopped where the judge saw a hole, and nowhere else.
func (w *world) judgeHalts(readings []judge.Reading) {
	for q, r := range readings {
		if why, halted := w.halted[q]; halted != (r.Hole != "") {
			w.say("keyed %d: halted: %v (%s), hole: %q", q, halted, why, r.Hole)
		}
	}
}

// judgeHits asks that the hits topic holds, however often, what a detector that nothing happens to makes of the keyed
// log, to the byte, and nothing else. It returns its records.
func (w *world) judgeHits() (offences []detectors.Hit) {
	want := map[string]bool{}
	for q := range w.keyed.parts {
		for _, h := range w.foldCalmly(q) {
			raw, err := detectors.EncodeHit(&h)
			if err != nil {
				w.say("keyed %d: %v", q, err)
			}
			want[string(raw)] = true
		}
	}
	got := map[string]bool{}
	for p := range w.hits.parts {
		for _, r := range w.hits.parts[p].records {
			h, err := detectors.DecodeHit(r.value)
			if err != nil {
				w.say("hits %d: %v", p, err)
			}
			if h.Kind == detectors.KindRelease {
				continue
			}
			offences = append(offences, h)
			if w.seen.hits++; got[string(r.value)] {
				w.seen.hitsAgain++
			}
			got[string(r.value)] = true
			if !want[string(r.value)] {
				w.say("hits %d: nothing in the keyed log asks for %s", p, r.value)
			}
		}
	}
	for raw := range want {
		if !got[raw] {
			w.say("the hits topic lacks %s", raw)
		}
	}
	return offences
}

// foldCalmly folds a keyed partition from its beginning, without any stage around it.
func (w *world) foldCalmly(q int) []detectors.Hit {
	p := detectors.NewPartition(detectors.Config{
		Keyed: q, Sources: len(w.requests.parts), Generation: generation, Secret: detectors.Secret(secret()), Stall: w.stall,
		Budget: w.budget,
	})
	var out []detectors.Hit
	var k detectors.Keyed
	for i, r := range w.keyed.parts[q].records {
		err := detectors.DecodeKeyed(r.value, &k)
		before := len(out)
		for err == nil {
			out, err = p.Fold(r.at, &k, out)
			var unknown *detectors.UnknownVersionError
			if !errors.As(err, &unknown) {
				break
			}
			p.Learn(detectors.NewPlan(w.routings[unknown.Version-1]))
			err = nil
		}
		for n := range out[before:] {
			out[before+n].Place, out[before+n].Nth = int64(i)+1, n+1
		}
		if err != nil {
			w.say("keyed %d, record %d: %v", q, i, err)
			break
		}
	}
	for _, n := range p.Counts().Evicted {
		w.seen.evicted += int(n)
	}
	return out
}

// enforcement is what ENFORCE was given and did, as the judge reads it.
func (w *world) enforcement(records []detectors.Hit) *judge.Enforcement {
	e := &judge.Enforcement{
		Changes: w.changes, Modes: w.modes, Releases: w.releases, Decisions: w.decided, TTL: map[string]int64{}, OnHit: map[string]bool{},
	}
	for _, r := range w.routings {
		for i := range r.Rules {
			if b := r.Rules[i].Block; b != nil {
				e.TTL[r.Rules[i].ID], e.OnHit[r.Rules[i].ID] = b.TTL.Microseconds(), b.Extend == rules.ExtendOnHit
			}
		}
	}
	phases := []detectors.Phase{detectors.PhaseOpen, detectors.PhaseUpdate, detectors.PhaseClosed}
	for i := range records {
		h := &records[i]
		if h.Kind == detectors.KindHit && slices.Contains(phases, h.Phase) && h.BlockSubject != "" {
			e.Offences = append(e.Offences, judge.Offence{
				Hit: h.ID, Rule: h.Rule, Subject: string(h.BlockSubject), Opens: h.Phase == detectors.PhaseOpen,
				First: int64(h.First), Last: int64(h.Last),
			})
		}
	}
	return e
}
