package demo

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// Answer is what one client was told about one request.
type Answer struct {
	Client     int // index in Answers.Cast
	ID         string
	Sent       traffic.Time
	Received   traffic.Time
	Status     int // 0: there was no answer, Err says why
	RetryAfter int // seconds; 0 without the header
	Rule       string
	Block      string
	Fault      bool // the client had asked the API to fail
	Err        string
}

// Refused reports whether weir refused the request.
func (a *Answer) Refused() bool { return a.Status == http.StatusTooManyRequests }

// actor plays one client. Its requests follow one another: a next one is sent when the one before has been answered.
type actor struct {
	index   int
	seat    int // among its kind
	client  Client
	rng     *rand.Rand
	http    *http.Client
	base    string
	tag     string
	clock   func() traffic.Time
	pulse   *pulse
	most    int // requests
	answers []Answer
	part    part
}

// shot is one request to send.
type shot struct {
	method, path string
	fault        bool
}

func takeToken() shot { return shot{method: http.MethodPost, path: pathTokens} }
func signIn() shot    { return shot{method: http.MethodPost, path: pathSignIn} }

func (a *actor) leaf() shot {
	return shot{method: http.MethodGet, path: fmt.Sprintf("%stitle-%d", pathCatalog, a.rng.IntN(1000))}
}

// send sends one request and waits for its answer.
func (a *actor) send(ctx context.Context, s shot) Answer {
	answer := Answer{
		Client: a.index, ID: fmt.Sprintf("%s-%d-%d", a.tag, a.index, len(a.answers)), Sent: a.clock(), Fault: s.fault,
	}
	if err := a.exchange(ctx, s, &answer); err != nil {
		answer.Status, answer.Err = 0, err.Error()
	}
	answer.Received = a.clock()
	a.answers = append(a.answers, answer)
	a.part.note(a.answers)
	return answer
}

func (a *actor) exchange(ctx context.Context, s shot, answer *Answer) error {
	request, err := http.NewRequestWithContext(ctx, s.method, a.base+s.path, nil)
	if err != nil {
		return err
	}
	request.Header.Set(headerClient, a.address().String())
	request.Header.Set(headerDevice, a.client.Device)
	request.Header.Set(headerRequest, answer.ID)
	request.Header.Set(headerPlan, a.client.Kind.plan())
	request.Header.Set("User-Agent", "weir-demo/"+string(a.client.Kind))
	if s.fault {
		request.Header.Set(headerFault, "503")
	}
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)); err != nil {
		return err
	}
	answer.Status = response.StatusCode
	answer.Rule, answer.Block = response.Header.Get(gate.HeaderRule), response.Header.Get(gate.HeaderBlock)
	if text := response.Header.Get("Retry-After"); text != "" {
		if answer.RetryAfter, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("Retry-After %q: %w", text, err)
		}
	}
	return nil
}

// address is the client's own, or any of its network.
func (a *actor) address() netip.Addr {
	network := a.client.Network
	if network.IsSingleIP() {
		return network.Addr()
	}
	b := network.Addr().As16()
	for i := 8; i < 16; i++ {
		b[i] = byte(a.rng.UintN(256))
	}
	return netip.AddrFrom16(b)
}

// pause waits, and reports whether the client goes on: not when the phase has ended or it has sent enough.
func (a *actor) pause(phase context.Context, d time.Duration) bool {
	return retry.Sleep(phase, d) == nil && phase.Err() == nil && len(a.answers) < a.most
}

// between is a time from low to high.
func (a *actor) between(low, high time.Duration) time.Duration {
	return low + time.Duration(a.rng.Int64N(int64(high-low)+1))
}
