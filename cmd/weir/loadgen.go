package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/loadgen"
	"github.com/weirhq/weir/traffic"
)

// loadgenFlags are what weir loadgen is told.
type loadgenFlags struct {
	settings           loadgen.Settings
	seed               string
	duration, disorder string
	patterns, mix      []string
	abuse              string
	truth, to, begin   string

	changed  func(flag string) bool // set on the command line
	beginsAt traffic.Time           // what parse makes of begin
}

func (a *app) loadgenCommand() *cobra.Command {
	var f loadgenFlags
	c := &cobra.Command{
		Use:   "loadgen",
		Short: "Send a seeded load with abusers in it, and verify what was found of them",
		Long: `Send made-up requests into the live stream: ordinary viewers, some more eager than others, and abusers among them. The
load is bounded in time and number; Ctrl-C ends it early. With --truth FILE it writes down what is true of it, and weir
loadgen verify computes from that who was over the limit of each rule, and compares it with history.

The clients have addresses of 198.18.0.0/15 and 2001:db8::/32, which belong to nobody, and devices, users and sessions
named load-SEED-…. A rule that blocks will block them. The same settings make the same events, but for the time at which
the load starts.

--to FILE writes the events as JSON lines for weir ingest --format weir --replay NAME instead; nothing is sent.

Patterns of abusers, in turn: burst (4 x --abuse-rate for 5 s of every 20 s), steady, rotate (steady, from ever new
addresses of one IPv6 /64), slow (a tenth of --abuse-rate), return (20 s of every 60 s).`,
		Example: `  weir loadgen --duration 2m --truth load.truth
  weir loadgen --rate 5000 --viewers 100000 --zipf 1.1 --abusers 50 --seed 7 --truth load.truth
  weir loadgen --mix "GET /v1/stream=9" --mix "POST /login" --abuse "POST /login" --truth load.truth
  weir loadgen --to load.jsonl --events 100000 --seed 7 --begin 2026-01-31T12:00:00Z --truth load.truth
  weir loadgen verify --truth load.truth`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			f.changed = cmd.Flags().Changed
			if err := f.parse(); err != nil {
				return err
			}
			if f.to != "" {
				return a.loadToFile(cmd.Context(), &f)
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return a.loadLive(cmd.Context(), conf, &f)
		}),
	}
	f.register(c)
	c.AddCommand(a.loadgenVerify())
	return c
}

func (f *loadgenFlags) register(c *cobra.Command) {
	s, flags := &f.settings, c.Flags()
	flags.StringVar(&f.seed, "seed", "", "number that decides everything random (default: another one each time)")
	flags.Float64Var(&s.Rate, "rate", 200, "requests of all ordinary viewers a second; abusers come on top")
	flags.StringVar(&f.duration, "duration", "1m", "how long, like 90s or 10m")
	flags.Int64Var(&s.Events, "events", 0, "at most so many events; without --duration that alone is the end (default: no such bound)")
	flags.IntVar(&s.Viewers, "viewers", 1000, "ordinary viewers")
	flags.Float64Var(&s.Zipf, "zipf", 0.5, "skew: viewer k asks in proportion to 1/k^zipf; 0: all alike")
	flags.IntVar(&s.Abusers, "abusers", 5, "abusers")
	flags.Float64Var(&s.AbuseRate, "abuse-rate", 5, "requests of one abuser a second, see patterns")
	flags.StringSliceVar(&f.patterns, "patterns", patternNames(), "patterns that abusers take in turn")
	flags.Float64Var(&s.IPv6, "ipv6", 0.3, "share of clients with an IPv6 address, 0 to 1")
	flags.Float64Var(&s.SignedOut, "signed-out", 0.2, "share of clients without a user, 0 to 1")
	flags.StringVar(&f.disorder, "disorder", "0s", "send each event up to so much after its time; keep it below the lateness of rules")
	flags.StringArrayVar(&f.mix, "mix", []string{"GET /v1/stream=6", "GET /v1/channels=3", "POST /v1/guest-tokens=1"},
		"what viewers ask for, METHOD PATH=WEIGHT; may be repeated")
	flags.StringVar(&f.abuse, "abuse", "POST /v1/guest-tokens", "what abusers ask for, METHOD PATH")
	flags.StringVar(&f.truth, "truth", "", "write the truth to this new file, for weir loadgen verify")
	flags.StringVar(&f.to, "to", "", "write the events to this new file, - for standard output, and send nothing")
	flags.StringVar(&f.begin, "begin", "", "with --to: time of the first event, RFC 3339 (default: so that the last is of now)")
	flags.IntVar(&s.Proxies, "proxies", 0, "with --to: trusted proxies that the replay will assume (identity.ip.trusted_proxies)")
}

func patternNames() []string {
	var names []string
	for _, p := range loadgen.Patterns() {
		names = append(names, string(p))
	}
	return names
}

// parse checks the flags before anything is touched.
func (f *loadgenFlags) parse() error {
	s := &f.settings
	if err := f.parseSeed(); err != nil {
		return err
	}
	var err error
	if s.Duration, err = duration.Parse(f.duration); err != nil {
		return usage.Errorf("--duration: %w", err)
	}
	if s.Disorder, err = duration.Parse(f.disorder); err != nil {
		return usage.Errorf("--disorder: %w", err)
	}
	if f.changed("events") && !f.changed("duration") && s.Rate > 0 && s.Events > 0 {
		// Viewers alone send that many in so long.
		whole := math.Ceil(float64(s.Events)/s.Rate) + 1
		s.Duration = time.Duration(min(whole, loadgen.MaxDuration.Seconds())) * time.Second
	}
	s.Patterns = nil
	for _, p := range f.patterns {
		s.Patterns = append(s.Patterns, loadgen.Pattern(p))
	}
	s.Mix = nil
	for _, text := range f.mix {
		call, err := loadgen.ParseCall(text)
		if err != nil {
			return usage.Errorf("--mix: %w", err)
		}
		s.Mix = append(s.Mix, call)
	}
	if s.Abuse, err = loadgen.ParseCall(f.abuse); err != nil {
		return usage.Errorf("--abuse: %w", err)
	}
	if err := s.Validate(); err != nil {
		return &usage.Error{Err: err}
	}
	return f.parseFile()
}

func (f *loadgenFlags) parseSeed() error {
	if f.seed == "" {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return fmt.Errorf("drawing a seed: %w", err)
		}
		f.settings.Seed = uint64(binary.LittleEndian.Uint32(b[:]))
		return nil
	}
	if _, err := fmt.Sscanf(f.seed, "%d", &f.settings.Seed); err != nil || fmt.Sprint(f.settings.Seed) != f.seed {
		return usage.Errorf("--seed: got %q; allowed: a whole number from 0 to %d", f.seed, uint64(math.MaxUint64))
	}
	return nil
}

func (f *loadgenFlags) parseFile() error {
	if f.to == "" {
		if f.begin != "" || f.changed("proxies") {
			return usage.Errorf("--begin and --proxies are for --to: a live load begins now, and the installation knows its proxies")
		}
		return nil
	}
	if f.to == f.truth {
		return usage.Errorf("--to and --truth: got %q for both; allowed: two files", f.to)
	}
	if f.begin != "" {
		t, err := time.Parse(time.RFC3339Nano, f.begin)
		if err != nil {
			return usage.Errorf("--begin: got %q; allowed: a time like 2026-01-31T12:00:00Z", f.begin)
		}
		f.beginsAt = traffic.At(t)
	}
	return nil
}

// start is when a load that is written to a file begins.
func (f *loadgenFlags) start() traffic.Time {
	if f.begin != "" {
		return f.beginsAt
	}
	return service.Now().Add(-f.settings.Duration)
}

// describe says what load it is, before it begins.
func (a *app) describeLoad(s *loadgen.Settings) {
	bound := "for " + s.Duration.String()
	if s.Events > 0 {
		bound += fmt.Sprintf(" or %s", terminal.Plural(s.Events, "event"))
	}
	var patterns []string
	for n := range min(s.Abusers, len(s.Patterns)) {
		patterns = append(patterns, string(s.Patterns[n]))
	}
	fmt.Fprintf(a.Stderr, "seed %d: %s at %s requests/s, %s (%s), %s\n", s.Seed, terminal.Plural(s.Viewers, "viewer"), terminal.Amount(s.Rate),
		terminal.Plural(s.Abusers, "abuser"), strings.Join(patterns, ", "), bound)
}

// runLoad sends a load and closes its truth.
func (a *app) runLoad(ctx context.Context, o loadgen.RunOptions, end func(*loadgen.End) error) (loadgen.Outcome, error) {
	a.describeLoad(&o.Settings)
	progress := terminal.StartProgress(a.Stderr, 0)
	o.Clock = service.Now
	o.Sent = func(events, bytes int) {
		progress.Events.Add(int64(events))
		progress.Bytes.Add(int64(bytes))
	}
	out, err := loadgen.Run(ctx, o)
	progress.Close()
	last := loadgen.End{At: service.Now(), Events: out.Events, Complete: out.Complete}
	if eerr := end(&last); err == nil {
		err = eerr
	}
	if terr := o.Truth.End(last); err == nil {
		err = terr
	}
	return out, err
}
