package alerts

import "time"

// Operators' thresholds, each with the reason why it is neither less nor more.
const (
	// After the worst restart of docs/faults.md, the only broker's, the stream has caught up within 42 s. What is further behind is no restart.
	lagMost = time.Minute
	// Within 15 minutes: of so many, not one is no chance, and no quiet Sunday.
	eventsLeast = 1000
	// Nobody is held back by history, and Kafka keeps the hits; but reviews and consoles show what is minutes old.
	historyLagMost = 5 * time.Minute
	// Beyond the margin by which idle partitions stay behind on purpose. The watermark waits five minutes for a source partition that says
	// nothing, and then goes on; one more is no waiting.
	watermarkMost = 6 * time.Minute
	// With a full budget in all partitions of one process a snapshot of each is written every 27 minutes.
	snapshotMost = 2 * time.Hour
	// The keyed topic must reach back to the snapshot before the newest one, since that may be damaged: DETECT writes one after a third of
	// the retention at the latest. At half of it the other half is left to act in.
	snapshotParts, snapshotHalf = 3, 2
	// A gate knows of a change within a second, and of a lost connection it hears within a few.
	staleMost = 30 * time.Second
	// What cannot be decoded is a client's or a gateway's mistake up to one in a hundred; beyond, limits are counted wrong.
	deadLettersMost = 0.01
	// Above it keys are evicted next. Windows grow and shrink by a few per cent in minutes.
	budgetMost = 0.9
	// Redis refuses new blocks at its maximum; below that there must be room for one attack, in which blocks grow by tens of per cent.
	redisMost = 0.85
	// Rounds are made again after seconds. A failover makes some fail at once; it is over when the alert has been held.
	reconcileFailures = 3
	// History below it fits any disk, and doubles in a day where it is young.
	historyLeast = 10 << 30
	// At twice its size within a week there is no time for a new disk.
	historyGrowth, historyAhead = 2, 7 * day
	// A ticket of Friday evening is still there on Monday. Who takes a part away for good silences its alert for so long.
	remembered = 7 * day
	// As weir doctor fails: event times that are later than Kafka's by more are corrected, and max_lag of rules is
	// not much longer.
	clockMost = 5 * time.Second
	// A rolling upgrade is over by then.
	mixedBuildsMost = 6 * time.Hour
	// Longer than anybody tries out a gate, shorter than a night in which nobody is refused.
	observingMost = time.Hour
)

// Owners' thresholds. Each has a minimum in plain numbers beside it, since of few events any share is chance.
const (
	// A day and a week do not make a factor of five; an attack, a new client or a wrong limit does.
	unusualFactor = 5
	unusualLeast  = 20 // blocks within an hour
	// One request in twenty refused by one rule is an attack or a wrong rule. Its owner knows which.
	refusalsMost  = 0.05
	refusalsLeast = 100 // within 15 minutes
	// Fewer requests within a day say nothing about a rule that matches none of them.
	trafficLeast = 10_000
	// A rule that leaves out one event in five does not limit what its owner thinks.
	missingMost = 0.2
	// Late events are those of a slow shipper. Up to one in twenty moves no count far.
	lateMost     = 0.05
	matchedLeast = 100 // within 30 minutes
)

// persists is how long counters must grow that a single failure moves, too: longer than the five minutes in which their rates
// see one.
const persists = 6 * time.Minute
