package simulation

import "strings"

// bugs are sentences of the protocol that can be broken, one at a time. All of them are put into the fakes, or between a
// fake and the stage: production code has no switch for them.
type bugs struct {
	lossy bool // the keyed log loses batches that it has acknowledged, in every run

	// What a router is shown of its group's commits.
	forgetEnd, shrinkEnd, overshootEnd, forgetVersion, keepPosition bool
	// What becomes of a router's commits.
	assumeCommitted, repeatCommit, coverDone, skipFirst, acceptStaleCommits bool
	// What becomes of its appends.
	splitBatches, ackUnwritten, carryChunk bool
	// What detectors are shown of the keyed log.
	noFence, tickTakesOffset, tickTakesBefore, idleByAppend, tickWithoutPrev bool
	// What becomes of their hits and snapshots.
	ackUnwrittenHits, ignoreEpoch bool
	// What becomes of RECORD's and ENFORCE's work.
	commitUnstored, overwriteRows bool
	publishAfterSweep             bool // one goroutine asserts all blocks and publishes the modes, in turn
	// What a gate is shown of the delta streams.
	loadBeforeFollow, blindToGaps bool

	script [2]string // a line of a Redis script, and what it is replaced by
}

// mutation is one sentence of docs/DESIGN.md §2 taken away.
type mutation struct {
	name     string // in model's words where shared with it
	sentence string
	bugs     bugs
	first    uint64
	seeds    int // within so many seeds, from first on, one must fail
}

// mutations lists what the simulation has been seen to need. The names in brackets are the switches of the protocol's
// executable model. These of its switches are not here:
//
//   - snap=W, order=prev, wset=seen, retw=0, stallclk=0, limv=arriving, rejoin: decisions inside of detectors, on state that
//     no port shows. The rapid tests of that package break on them.
//   - commit_to=other: the router would have to announce another end in the place of one without an answer; what a port can
//     do to the same effect is commit_to=same and a commit that is taken for done.
//   - cover=events, split=0, tick_inflight=0, gm=end: other readings of the text that are as right.
//   - stalltest, start, outage, alldown: scenes, not sentences. The worlds have an outage and a short stall of their own.
func mutations() []mutation {
	return []mutation{
		{"no fence", "The owner keeps fence[p] and accepts only a greater o.", bugs{noFence: true}, 0, 50},
		{"split batches", "A router appends, per chunk, ONE atomic batch per target partition, in order.", bugs{splitBatches: true}, 0, 50},
		{"chunk acknowledged before it is written", "It commits after all acks (acks=all).", bugs{ackUnwritten: true}, 0, 50},
		{"chunk carried over a rebalance [retry_over]", "A failed chunk is retried whole within its group generation only.", bugs{carryChunk: true}, 25, 300},
		{"announced end forgotten", "A successor routes up to the announced end under the inherited version.", bugs{forgetEnd: true}, 15, 300},
		{"announced end lowered [shrink]", "An announced end never goes back.", bugs{shrinkEnd: true}, 15, 300},
		{"chunk over the announced end [overshoot]", "No chunk crosses an announced end.", bugs{overshootEnd: true}, 101, 2000},
		{"older version [fwd]", "The version changes only there, and only to a greater one.", bugs{forgetVersion: true}, 41, 300},
		{"commits of old generations", "A zombie cannot announce, its generation is refused.", bugs{acceptStaleCommits: true}, 27, 300},
		{"own position kept [mem]", "Every generation starts from the fetched commits.", bugs{keepPosition: true}, 15, 300},
		{"commit taken for done", "A commit without an answer ends the generation for this router.", bugs{assumeCommitted: true}, 103, 1500},
		{"commit repeated [commit_to=same]", "A commit without an answer ends the generation for this router.", bugs{repeatCommit: true}, 103, 1500},
		{"commit of the finished chunk only [cover=done]", "A commit covers every partition with events in either chunk.", bugs{coverDone: true}, 165, 500},
		{"first chunk not announced [first]", "The commit is written before the chunk that it announces.", bugs{skipFirst: true}, 67, 1000},
		{"tick moves the fence [tick_fence=o]", "A tick passes by the fence.", bugs{tickTakesOffset: true}, 0, 50},
		{"tick moves the fence to the one before [tick_fence=o-1]", "A tick passes by the fence.", bugs{tickTakesBefore: true}, 3, 100},
		{"tick without prev [tickprev]", "Each record names prev: prev > fence is a hole.", bugs{tickWithoutPrev: true, lossy: true}, 9, 100},
		{"idle by append time alone [idle=append]", "The lesser of the router's clock from before the fetch and the append time.", bugs{idleByAppend: true}, 1, 500},
		{"hits acknowledged before they are written", "A snapshot only after every output up to its offset is acknowledged.", bugs{ackUnwrittenHits: true}, 4, 100},
		{"epoch ignored", "A snapshot is accepted only WHERE epoch = mine.", bugs{ignoreEpoch: true}, 3, 300},
		{"modes behind a sweep", "Modes are published at once, not behind a sweep.", bugs{publishAfterSweep: true}, 0, 50},
		{"a gate loads before it follows", "A gate follows while it loads.", bugs{loadBeforeFollow: true}, 1, 100},
		{"a gate blind to gaps", "Each delta names the one before it: one that does not is a gap.", bugs{blindToGaps: true}, 1, 100},
		{"offsets committed before the store", "RECORD and ENFORCE commit only after their store has acknowledged.", bugs{commitUnstored: true}, 1, 50},
		{"rows overwritten", "Hits are upserted with greatest().", bugs{overwriteRows: true}, 2, 500},
		{"expiry lowered", "Block expiries are absolute and only raised.", bugs{script: [2]string{
			"  if block['until'] >= ARGV[3] then return 'unchanged' end\n", ""}}, 4, 300},
		{"no tombstone", "A released block is not blocked again by replay: its tombstone holds.", bugs{script: [2]string{
			"if tombstone and (tombstone.hit == ARGV[6] or ARGV[7] <= tombstone.released) then return 'released' end\n", ""}}, 15, 300},
		{"tombstone lowered", "A tombstone is only raised.", bugs{script: [2]string{
			"if tombstone and tombstone.released >= ARGV[2] then", "if false then"}}, 33, 1000},
		{"older mode generation", "A block carries its rule's mode generation, which is only raised.", bugs{script: [2]string{
			"if block and block.generation > generation then return 'stale' end\n", ""}}, 3684, 4000},
		{"refused for memory, and not said", "What Redis has no memory for is withheld, an answer and no error.", bugs{script: [2]string{
			"then return 'full' end", "then return 'unchanged' end"}}, 29, 300},
	}
}

// change makes the replacement in a script's text; done says that the line was there.
func (b *bugs) change(text string) (changed string, done bool) {
	if b.script[0] == "" || !strings.Contains(text, b.script[0]) {
		return text, false
	}
	return strings.ReplaceAll(text, b.script[0], b.script[1]), true
}
