// Package demo is a small streaming service that weir guards, with its viewers and abusers, and the judge of what came
// of it: a gateway that asks weir about each request and reports each to Kafka, simulated clients, and the truth,
// computed without weir's detectors from the times at which the gateway stamped the requests (docs/demo.md).
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

const (
	// MinDuration is the shortest run in which every client can play its part.
	MinDuration = 20 * time.Second

	shadowFor = 4 * time.Second // at least; abusers are at work, and the rules watch
	// pauseFor is the abusers' rest before the promotion: what they did in shadow must not block them afterwards, even if
	// it were noticed late. A block for it would be over by then, and so is the episode.
	pauseFor = blockFor + 500*time.Millisecond
	// grace is how much longer a phase may last on a machine so busy that some abuser has not gone over a limit in it,
	// or has not been refused: their part is theirs to play, however slowly they are served. Stalls come on top of it,
	// up to graceMost in all.
	grace     = 10 * time.Second
	graceMost = time.Minute
	// settleFor is what the promotion may take to reach the gates.
	settleFor = time.Second

	requestTimeout = 10 * time.Second
)

// Options configure Run. GatewayURL and Log are required.
type Options struct {
	Seed  uint64 // who the clients are and what they do
	Round uint64 // tells the clients of this run from those of another one with the same seed, on the same installation
	// Duration is how long the clients are at work, the time of Promote not counted: at least MinDuration. On a machine too
	// busy for everybody to play their part in it, a phase lasts up to 10 s more, in which the machine lets it run.
	Duration   time.Duration
	GatewayURL string
	Viewers    int // ordinary viewers besides neighbours and office, default 12
	Office     int // people behind the office's one address, default 50
	Abusers    int // of each kind, default 3
	Requests   int // the most that one client sends, default 3,000
	// Promote is called once, when the rules have watched for a while and every abuser is at rest. It makes them block and
	// returns when that is decided. Without it, the rules stay in shadow, and nobody may be refused.
	Promote func(ctx context.Context) error
	// Watched: people watch the run, and nobody judges it. Its blocks may outlast it, so abusers do not ask every few milliseconds whether
	// they are blocked, and no phase lasts longer so that everybody can play their part.
	Watched   bool
	Transport http.RoundTripper   // default one with a connection per client
	Clock     func() traffic.Time // default the system's; the gateway's must be the same
	Log       *slog.Logger
}

// Answers is what the clients have seen of a run.
type Answers struct {
	Seed      uint64
	Tag       string // what the ids of the run's requests begin with
	Cast      []Client
	Requests  []Answer
	Began     traffic.Time
	Ended     traffic.Time
	Promotion traffic.Time // when Promote was called; 0: it was not
	Promoted  traffic.Time // when it had returned
	Stalls    []Stall      // one after the other
	CutShort  bool         // a phase ended before each abuser had played its part, since the machine stood still
}

func (o Options) withDefaults() Options {
	o.Viewers = cmp.Or(o.Viewers, 12)
	o.Office = cmp.Or(o.Office, 50)
	o.Abusers = cmp.Or(o.Abusers, 3)
	o.Requests = cmp.Or(o.Requests, 3000)
	if o.Clock == nil {
		o.Clock = func() traffic.Time { return traffic.At(time.Now()) }
	}
	return o
}

func (o Options) validate() error {
	if o.Log == nil {
		return errors.New("demo: Log is missing")
	}
	if o.Duration < MinDuration {
		return fmt.Errorf("demo: duration %s, allowed: %s and more", o.Duration, MinDuration)
	}
	if u, err := url.Parse(o.GatewayURL); err != nil || u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("demo: gateway URL %q, allowed: http://HOST:PORT", o.GatewayURL)
	}
	for _, n := range []struct {
		name      string
		got, most int
	}{{"viewers", o.Viewers, 500}, {"people in the office", o.Office, 500}, {"abusers", o.Abusers, 50}, {"requests", o.Requests, 100_000}} {
		if n.got < 1 || n.got > n.most {
			return fmt.Errorf("demo: %s is %d, allowed: 1 to %d", n.name, n.got, n.most)
		}
	}
	return nil
}

// tag is in the ids of the run's devices and requests.
func (o Options) tag() string { return fmt.Sprintf("s%x-%x", o.Seed, o.Round) }

// Run plays a whole run: the rules watch, the abusers rest, Promote, the rules block. The installation must be ready:
// an event that comes before the rules are routed is counted by nobody, and Judge would say so. An error is about the
// run itself; whether weir did right is Judge's to say.
func Run(ctx context.Context, o Options) (Answers, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return Answers{}, err
	}
	p := newPlay(o)
	defer p.http.CloseIdleConnections()
	p.answers.Began = o.Clock()
	stop := p.pulse.start(ctx)
	err := p.run(ctx)
	p.answers.Stalls = stop()
	p.answers.Ended = o.Clock()
	for _, a := range p.actors {
		p.answers.Requests = append(p.answers.Requests, a.answers...)
	}
	if err != nil {
		return p.answers, fmt.Errorf("demo: %w", err)
	}
	return p.answers, nil
}

// play is a run that is under way.
type play struct {
	o       Options
	http    *http.Client
	actors  []*actor
	pulse   *pulse
	answers Answers
}

func newPlay(o Options) *play {
	cast := o.Cast()
	transport := o.Transport
	if transport == nil {
		transport = &http.Transport{MaxIdleConnsPerHost: len(cast), MaxIdleConns: len(cast), DisableCompression: true}
	}
	p := &play{
		o: o, http: &http.Client{Transport: transport, Timeout: requestTimeout},
		answers: Answers{Seed: o.Seed, Tag: o.tag(), Cast: cast}, pulse: &pulse{clock: o.Clock},
	}
	seats := map[Kind]int{}
	for i, client := range cast {
		p.actors = append(p.actors, &actor{
			index: i, seat: seats[client.Kind], client: client, rng: rand.New(rand.NewPCG(o.Seed^o.Round<<32, uint64(i)+1)),
			http: p.http, base: strings.TrimSuffix(o.GatewayURL, "/"), tag: o.tag(), clock: o.Clock, most: o.Requests,
			pulse: p.pulse,
		})
		seats[client.Kind]++
	}
	return p
}

func (p *play) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	viewing, close := context.WithCancel(ctx)
	var viewers sync.WaitGroup
	var office []*actor
	for _, a := range p.actors {
		switch {
		case a.client.Kind == KindOffice:
			office = append(office, a)
		case !a.client.Kind.Abuses():
			viewers.Go(func() { a.view(ctx, viewing) })
		}
	}
	viewers.Go(func() { work(ctx, viewing, office) })
	err := p.phases(ctx)
	if err != nil {
		cancel() // requests under way as well
	}
	close()
	viewers.Wait()
	return err
}

func (p *play) phases(ctx context.Context) error {
	shadow := max(shadowFor, p.o.Duration/5)
	p.o.Log.Info("demo: the rules watch", "for", shadow, "clients", len(p.actors))
	p.abuse(ctx, shadow, false)
	if err := retry.Sleep(ctx, pauseFor); err != nil {
		return err
	}
	if p.o.Promote != nil {
		p.answers.Promotion = p.o.Clock()
		if err := p.o.Promote(ctx); err != nil {
			return fmt.Errorf("promote the rules: %w", err)
		}
		p.answers.Promoted = p.o.Clock()
	}
	if err := retry.Sleep(ctx, settleFor); err != nil {
		return err
	}
	left := p.o.Duration - shadow - pauseFor - settleFor
	p.o.Log.Info("demo: the abusers are at it again", "for", left, "promoted", p.o.Promote != nil)
	p.abuse(ctx, left, p.o.Promote != nil && !p.o.Watched)
	return ctx.Err()
}

// abuse lets the abusers work for a while, longer by up to grace until each has played its part, and returns when their
// last answers are there.
func (p *play) abuse(ctx context.Context, d time.Duration, probe bool) {
	phase, end := context.WithCancel(ctx)
	defer end()
	var abusers sync.WaitGroup
	var parts []<-chan struct{}
	for _, a := range p.actors {
		if a.client.Kind.Abuses() {
			parts = append(parts, a.begin(probe))
			abusers.Go(func() { a.abuse(ctx, phase, probe) })
		}
	}
	if retry.Sleep(ctx, d) == nil && !p.o.Watched {
		p.linger(ctx, parts)
	}
	end()
	abusers.Wait()
}

// linger waits until all parts are played, for grace at most in which the machine lets the process run.
func (p *play) linger(ctx context.Context, parts []<-chan struct{}) {
	began := p.o.Clock()
	for _, played := range parts {
		for waiting := true; waiting; {
			now, over, most := p.o.Clock(), p.pulse.ran(began, grace), began.Add(graceMost)
			if now >= min(over, most) {
				p.answers.CutShort = p.answers.CutShort || now < over
				return
			}
			timer := time.NewTimer(min(over, most).Sub(now))
			select {
			case <-played:
				waiting = false
			case <-timer.C:
			case <-ctx.Done():
				waiting = false
			}
			timer.Stop()
		}
	}
}

// work plays the office, round by round. The next round starts when the last answer of the one before has left the
// window, so the office is never over a limit, and in each round exactly at those of its address.
func work(ctx, phase context.Context, office []*actor) {
	for round := 0; ; round++ {
		var people sync.WaitGroup
		for _, a := range office {
			people.Go(func() { a.visit(ctx, phase, round, len(office)) })
		}
		people.Wait()
		if retry.Sleep(phase, window+slack) != nil {
			return
		}
	}
}
