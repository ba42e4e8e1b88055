package detectors

// prefetchMost is how many records are looked ahead at together, at most.
const prefetchMost = 64

// prefetched is an event's key under one of its rules, computed before the event is folded. Keys of form keyText are not
// prefetched: known is false.
type prefetched struct {
	print   Fingerprint
	missing int32
	known   bool
	at      int32 // where in its sub-table the key probably stands
}

// prefetcher looks up the keys of the records that are folded next.
type prefetcher struct {
	keys  []prefetched // of each record, for each of its rules
	ends  []int        // in keys, of each record
	slots []*slot
	sum   uint64 // only keeps the compiler from removing loads
}

// load computes the keys of records of p, and touches the memory that their windows lie in: first the places of all of them, then
// the slots, then the blocks of logs, so that within each of the three steps no load waits for another.
func (f *prefetcher) load(records []Record, p *Partition) {
	f.keys, f.ends, f.slots = f.keys[:0], f.ends[:0], f.slots[:0]
	for i := range records {
		k := &records[i].Keyed
		p.fingerprints.begin(nil)
		var bindings []binding
		if v := p.routings.get(k.Version); v != nil {
			bindings = v.bindings
		}
		for _, r := range k.Rules {
			if k.Kind != KeyedEvent || r >= len(bindings) || bindings[r].lineage.form == keyText {
				f.keys = append(f.keys, prefetched{})
				continue
			}
			key, missing := p.fingerprints.key(k, &bindings[r])
			x := prefetched{print: key, missing: int32(missing), known: true}
			if cells := &bindings[r].lineage.cells; cells.n > 0 {
				var s *slot
				s, x.at = cells.guess(key)
				f.slots = append(f.slots, s)
			}
			f.keys = append(f.keys, x)
		}
		f.ends = append(f.ends, len(f.keys))
	}
	f.sum += p.keys.ledger.prefetch(f.slots)
}

// of is the keys of the record at an index in the last call of load, one for each of its rules.
func (f *prefetcher) of(record int) []prefetched {
	start := 0
	if record > 0 {
		start = f.ends[record-1]
	}
	return f.keys[start:f.ends[record]]
}
