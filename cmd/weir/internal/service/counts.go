package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

const (
	askTimeout = 3 * time.Second  // of one question to a process
	askWait    = 10 * time.Second // for a partition that moves, and an owner that is busy
	askAgain   = time.Second
	askInTurn  = 20 * time.Second // with the wait for others who ask
	maxCount   = 1 << 20          // bytes of an answer
	mostAsking = 8                // at once, of one console
)

// newCountsClient follows no redirect: an answer is the owner's, or none.
func newCountsClient() *http.Client {
	return &http.Client{Timeout: askTimeout, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// Counts asks the processes that count what they have counted. It is safe for concurrent use.
type Counts struct {
	history *history.Store
	at      string // who is asked; empty: whoever reports the partition
	client  *http.Client
	asking  chan struct{}
}

var _ api.Counts = (*Counts)(nil)

// NewCounts asks the process at an address, http://HOST:PORT, or where that is empty the one that reports the
// partition.
func NewCounts(h *history.Store, at string) *Counts {
	return &Counts{history: h, at: at, client: newCountsClient(), asking: make(chan struct{}, mostAsking)}
}

// Count asks the process that counts a source of a rule, in its turn: a process answers only so many at once.
func (c *Counts) Count(ctx context.Context, rule string, who traffic.Subject) (api.Count, error) {
	ctx, cancel := context.WithTimeout(ctx, askInTurn)
	defer cancel()
	select {
	case c.asking <- struct{}{}:
		defer func() { <-c.asking }()
	case <-ctx.Done():
		return api.Count{}, ctx.Err()
	}
	found, err := (&api.Reader{Rules: c.history.Rules}).Named(ctx, rule)
	if err == nil {
		err = acts.Counts(&found)
	}
	if err != nil {
		return api.Count{}, err
	}
	q := question{Counts: c, rule: &found, who: who}
	counted, err := q.ask(ctx)
	var unfit *acts.Invalid
	if err != nil && !errors.As(err, &unfit) && ctx.Err() == nil && !postgres.Broken(err) {
		err = &acts.AwayError{Store: "The process that counts this source", Cause: err,
			Consequence: "what it has counted is not known; while a partition moves, or DETECT is away, that is so"}
	}
	return counted, err
}

// question is about one source.
type question struct {
	*Counts
	rule *rulestore.Rule
	who  traffic.Subject
}

// busy is an answer after which it is worth to ask again.
type busy struct{ error }

// ask asks until there is an answer, for askWait at most: partitions move, and owners are busy.
func (q *question) ask(ctx context.Context) (api.Count, error) {
	partition, err := q.partition(ctx)
	if err != nil {
		return api.Count{}, err
	}
	for end := time.Now().Add(askWait); ; {
		base, owner := q.at, ""
		if base == "" {
			if base, owner, err = q.owner(ctx, partition); err != nil {
				return api.Count{}, err
			}
		}
		counted, err := q.askAt(ctx, base, owner)
		if err == nil || !errors.As(err, new(busy)) || time.Now().Add(askAgain).After(end) {
			return counted, err
		}
		if err := retry.Sleep(ctx, askAgain); err != nil {
			return api.Count{}, err
		}
	}
}

// partition is the keyed partition that counts the source.
func (q *question) partition(ctx context.Context) (int, error) {
	stream, err := q.history.Streams.Find(ctx, history.Live)
	if err != nil {
		return 0, err
	}
	_, secret, err := q.history.Streams.Secret(ctx)
	if err != nil {
		return 0, err
	}
	var unfit error
	for _, key := range q.rule.Keys() {
		partition, err := route.TargetOf(secret[:], stream.Partitions.Keyed, q.rule.Newest.Version.ID, key, q.who)
		if err == nil {
			return partition, nil
		}
		unfit = err
	}
	return 0, &acts.Invalid{Field: "subject", Got: string(q.who),
		Allowed: "a source as the rule counts it: " + unfit.Error()}
}

// owner finds who has the partition, and where it answers.
func (q *question) owner(ctx context.Context, partition int) (base, owner string, err error) {
	p, found, err := OwnerOf(ctx, q.history.Partitions, history.Live, partition)
	switch {
	case err != nil:
		return "", "", err
	case !found:
		return "", "",
			fmt.Errorf("nobody has reported keyed partition %d, which counts this source: is weir run --stages "+
				"detect running? "+
				"What was counted before is in its snapshot, and goes on with it", partition)
	case p.Address == "":
		return "", "",
			fmt.Errorf("keyed partition %d is %s's, which does not say where it answers: name its http.listen "+
				"address with --at", partition, terminal.Safe(p.Owner))
	}
	return p.Address, fmt.Sprintf("%s, which reported keyed partition %d at %s", terminal.Safe(p.Owner), partition,
		terminal.Stamp(p.Reported)), nil
}

// askAt asks one process.
func (q *question) askAt(ctx context.Context, base, owner string) (api.Count, error) {
	values := url.Values{"rule": {q.rule.Newest.Version.ID}, "key": {string(q.who)}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+CountersPath+"?"+values.Encode(), nil)
	if err != nil {
		return api.Count{}, fmt.Errorf("asking %s: %w", terminal.Safe(base), err)
	}
	r.Host = "localhost" // which no page can make a browser say of a name of its own
	if owner != "" {
		owner = " (" + owner + ")"
	}
	response, err := q.client.Do(r)
	if err != nil {
		var wrapped *url.Error // which would repeat the whole of the URL
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return api.Count{},
			fmt.Errorf("%s%s does not answer: %w. Its http.listen address must be reached from here; --at names "+
				"another one",
				terminal.Safe(base), owner, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxCount))
	if err != nil {
		return api.Count{}, fmt.Errorf("%s%s: its answer breaks off: %w", terminal.Safe(base), owner, err)
	}
	if response.StatusCode == http.StatusOK {
		counted := api.Count{}
		if err := json.Unmarshal(body, &counted); err != nil || counted.Rule != q.rule.Newest.Version.ID ||
			counted.Subject != q.who {
			return api.Count{}, fmt.Errorf("%s%s gives no answer of a weir that detects: %w", terminal.Safe(base),
				owner,
				errors.Join(err, errors.New("not what was asked for")))
		}
		return counted, nil
	}
	return api.Count{}, countRefusal(response.StatusCode, body, base, owner)
}

// countRefusal is the error of an answer other than the count.
func countRefusal(code int, body []byte, base, owner string) error {
	var said NotCounted
	if json.Unmarshal(body, &said) != nil || said.Problem == "" {
		return fmt.Errorf("%s%s answers %d, which no weir does that detects and knows this question: upgrade it, or "+
			"name another with --at", terminal.Safe(base), owner, code)
	}
	text := said.Problem
	if said.Owner != "" {
		text += ": " + said.Owner
		if said.Address != "" {
			text += " at " + said.Address
		}
	}
	err := fmt.Errorf("%s%s: %s", terminal.Safe(base), owner, terminal.Cell(text))
	switch code {
	case http.StatusMisdirectedRequest, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return busy{err}
	}
	return err
}
