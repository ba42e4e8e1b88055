package judge

// Commit is what a router's commit says of one source partition.
type Commit struct {
	Partition            int
	Offset, End, Version int64 // all before Offset is acknowledged; the chunk that follows ends at End, under Version
}

// Commits judges all that was ever committed, in its order: offsets, ends and versions only go forward, nothing is acknowledged
// beyond what was announced, and a version changes only where a chunk has ended.
func Commits(list []Commit) Verdict {
	var v Verdict
	last := map[int]Commit{}
	for _, c := range list {
		was := last[c.Partition]
		if c.Offset > was.End {
			v.say("commit of %d goes on at %d, but only events up to %d were announced", c.Partition, c.Offset, was.End)
		}
		if c.Offset < was.Offset || c.End < was.End || c.End < c.Offset || c.Version < was.Version || c.Version != was.Version && c.Offset < was.End {
			v.say("commit of %d goes from [%d,%d) under version %d to [%d,%d) under version %d", c.Partition,
				was.Offset, was.End, was.Version, c.Offset, c.End, c.Version)
		}
		last[c.Partition] = c
	}
	return v
}
