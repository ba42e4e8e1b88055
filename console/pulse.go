package console

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/traffic"
)

// Pulse is what the running stages have done: counters since the process began, and what is wrong just now.
type Pulse struct {
	Events int64 // events read from the requests topic, bad ones included
	Keyed  int64 // keyed records written
	Hits   int64 // episodes opened
	Blocks int64 // blocks written
	// Stages say how far each stage is behind the end of its log; a stage that does not run here is not among them.
	Stages []StageLag
	// Unknown names the counters that cannot be known where the pulse is taken: see CounterHits. They are 0 then.
	Unknown []string
	// Foreign says whose Redis is, where it is another installation's; empty where it is not, or that is not known.
	Foreign string
	// Problems are shown as they are, to everybody who can open the page: they should name no password.
	Problems []Problem
	// Gates are those that have told of themselves lately. GatesUnknown: they cannot be asked for.
	Gates        []Gate
	GatesUnknown bool
}

// Gate is what a gate says of itself, and why it may not do what the installation asks.
type Gate struct {
	blocklist.GateReport
	Doubts []string
}

// Counters of a Pulse that may be unknown: only the processes of the stages count them.
const (
	CounterHits   = sectionHits
	CounterBlocks = sectionBlocks
)

// StageLag is how many records a stage has yet to work off.
type StageLag struct {
	Stage   string `json:"stage"`
	Records int64  `json:"records"`
}

// StoppedPartition is the problem of a partition that stands still until an operator looks. side is requests or keyed.
func StoppedPartition(side string, partition int) Problem {
	return Problem{
		Part: fmt.Sprintf("Partition %s/%d", side, partition), Detail: "has stopped; weir partitions list --stopped says why",
		Href: "/partitions",
	}
}

// Problem is a part that is away, and what that means: {"Kafka", "does not answer; nothing is counted"}.
type Problem struct {
	Part   string `json:"part" mask:"-"`
	Detail string `json:"detail" mask:"line"`
	Href   string `json:"-" mask:"-"` // of the page that says more; empty: there is none
}

// The counters of a Pulse, in the order of sample.totals.
const (
	ofEvents = iota
	ofKeyed
	ofHits
	ofBlocks
	ofAll
)

const (
	seriesLength = 120 // seconds that a curve shows
	rateOver     = 5   // seconds that a rate is the mean of
)

// sample is one reading of the counters: what came since the one before.
type sample struct {
	came    [ofAll]int64
	lag     int64
	seconds float64
}

// meter turns counters into rates and curves. Its zero value is ready.
type meter struct {
	last    [ofAll]int64
	at      traffic.Time
	samples []sample // oldest first, at most seriesLength
}

func (p *Pulse) totals() [ofAll]int64 {
	return [ofAll]int64{ofEvents: p.Events, ofKeyed: p.Keyed, ofHits: p.Hits, ofBlocks: p.Blocks}
}

func (p *Pulse) lag() (sum int64) {
	for _, s := range p.Stages {
		sum += s.Records
	}
	return sum
}

// add takes a reading. The first one only says where the counters stand. A counter that fell began anew.
func (m *meter) add(p *Pulse, now traffic.Time) {
	totals := p.totals()
	s := sample{lag: p.lag(), seconds: now.Sub(m.at).Seconds()}
	first := m.at == 0
	if !first && s.seconds <= 0 {
		m.at = now // the clock was set back, or two readings fell together: the next one counts for both
		return
	}
	for i, n := range totals {
		if !first {
			s.came[i] = max(0, n-m.last[i])
		}
	}
	m.last, m.at = totals, now
	if first {
		return
	}
	if len(m.samples) == seriesLength {
		m.samples = slices.Delete(m.samples, 0, 1)
	}
	m.samples = append(m.samples, s)
}

// rate is the mean of the newest samples, per second.
func (m *meter) rate(of int) float64 {
	var came int64
	var seconds float64
	for _, s := range m.samples[max(0, len(m.samples)-rateOver):] {
		came += s.came[of]
		seconds += s.seconds
	}
	if seconds == 0 {
		return 0
	}
	return float64(came) / seconds
}

// curveView is one counter of the stream.
type curveView struct {
	Total  int64     `json:"total"`
	Rate   float64   `json:"rate"`   // per second, over the last five
	Minute int64     `json:"minute"` // what came in the last minute
	Series []float64 `json:"series"` // per second, oldest first, at most 120
}

type lagView struct {
	Records int64      `json:"records"`
	Stages  []StageLag `json:"stages"`
	Series  []float64  `json:"series"`
}

// pulseView is the section "pulse".
type pulseView struct {
	At       traffic.Time `json:"at"` // the server's clock
	Events   curveView    `json:"events"`
	Keyed    curveView    `json:"keyed"`
	Hits     curveView    `json:"hits"`
	Blocks   curveView    `json:"blocks"`
	Lag      lagView      `json:"lag"`
	Problems []Problem    `json:"problems"`
	Unknown  []string     `json:"unknown,omitempty"` // counters that are not known here
}

func (m *meter) curve(of int) curveView {
	v := curveView{Total: m.last[of], Rate: m.rate(of), Series: make([]float64, 0, len(m.samples))}
	var since float64
	for _, s := range slices.Backward(m.samples) {
		if since += s.seconds; since > time.Minute.Seconds()+0.5 {
			break
		}
		v.Minute += s.came[of]
	}
	for _, s := range m.samples {
		v.Series = append(v.Series, float64(s.came[of])/s.seconds)
	}
	return v
}

func (m *meter) view(p *Pulse, now traffic.Time) pulseView {
	v := pulseView{
		At: now, Events: m.curve(ofEvents), Keyed: m.curve(ofKeyed), Hits: m.curve(ofHits), Blocks: m.curve(ofBlocks),
		Lag:      lagView{Records: p.lag(), Stages: slices.Clone(p.Stages), Series: make([]float64, 0, len(m.samples))},
		Problems: slices.Clone(p.Problems), Unknown: p.Unknown,
	}
	if v.Lag.Stages == nil {
		v.Lag.Stages = []StageLag{}
	}
	if v.Problems == nil {
		v.Problems = []Problem{}
	}
	for _, s := range m.samples {
		v.Lag.Series = append(v.Lag.Series, float64(s.lag))
	}
	return v
}
