package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// CountersPath is where a process that detects answers what it has counted of one source: GET with rule, and key as a canonical
// subject. See docs/counters.md.
const CountersPath = "/v1/counters"

// Bounds of what may be asked, so that whoever reaches the listener cannot slow the stage.
const (
	countersTimeout = 2 * time.Second
	maxCountersAsk  = 4       // at once
	maxCountersURL  = 8 << 10 // bytes behind the path
)

// NotCounted is every other answer. Owner and Address say who has the partition, where that is known.
type NotCounted struct {
	Problem   string `json:"problem"`
	Partition *int   `json:"partition,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Address   string `json:"address,omitempty"`
}

// counters answers GET CountersPath.
type counters struct {
	in       *Installation
	asked    *prometheus.CounterVec // code
	underWay chan struct{}
}

// AnswerCounters has h answer what the installation's DETECT counts, once it runs, and has that tell others where.
func (in *Installation) AnswerCounters(h *Health) error {
	asked := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_counters_requests_total",
		Help: "Questions about one count (weir counters show), by HTTP status: 200 answered, " +
			"400, 404 and 414 asked wrongly, 421 of a partition that is not here, " +
			"or for a name that anybody may have pointed here, 429 too many at once, 503 no answer in time.",
	}, []string{"code"})
	for _, code := range []int{
		http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusRequestURITooLong, http.StatusMisdirectedRequest, http.StatusTooManyRequests, http.StatusServiceUnavailable,
	} {
		asked.WithLabelValues(strconv.Itoa(code)) // what begins with its first count grows unseen
	}
	if err := in.registry.Register(asked); err != nil {
		return fmt.Errorf("counters: metrics: %w", err)
	}
	in.address = reachable(h.Listener.Addr())
	h.routes["GET "+CountersPath] = &counters{in: in, asked: asked, underWay: make(chan struct{}, maxCountersAsk)}
	return nil
}

// reachable is the address of a listener for other processes: one that listens everywhere has the first address of its machine.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if host = firstAddress(); host == "" {
			return ""
		}
	}
	return "http://" + net.JoinHostPort(host, port)
}

func firstAddress() string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}

// ServeHTTP answers with api.Count or NotCounted. What a client has sent is in no answer but the subject, which is one
// of the key's.
func (c *counters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, answer := http.StatusMisdirectedRequest, any(NotCounted{Problem: foreignName})
	if ours(r.Host) {
		code, answer = c.answer(r)
	}
	c.asked.WithLabelValues(strconv.Itoa(code)).Inc()
	body, err := json.Marshal(answer)
	if err != nil { // of plain data: never
		http.Error(w, "no answer", http.StatusInternalServerError)
		return
	}
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-store")
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		head.Set("Retry-After", "1")
	}
	w.WriteHeader(code)
	_, _ = w.Write(append(body, '\n')) // to who is gone there is nothing to say
}

// foreignName is the answer to who asks for a name that somebody else may have pointed here.
const foreignName = "counts are told to who asks for an address, localhost or a name without a dot: " +
	"a name of anybody's may point here"

// ours reports whether a request is meant for this process. It asks nobody who he is, so a page of anybody's could read
// what it tells, by a name of its own that leads here (DNS rebinding): it cannot by an address, nor by a name of one
// label.
func ours(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	_, err := netip.ParseAddr(host)
	return err == nil || host != "" && !strings.Contains(host, ".")
}

func (c *counters) answer(r *http.Request) (code int, answer any) {
	refuse := func(code int, problem string) (int, any) { return code, NotCounted{Problem: problem} }
	select {
	case c.underWay <- struct{}{}:
		defer func() { <-c.underWay }()
	default:
		return refuse(http.StatusTooManyRequests, "too many ask at once")
	}
	if len(r.URL.RawQuery) > maxCountersURL {
		return refuse(http.StatusRequestURITooLong, fmt.Sprintf("got %d bytes, allowed %d", len(r.URL.RawQuery), maxCountersURL))
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query) != 2 || len(query["rule"]) != 1 || len(query["key"]) != 1 {
		return refuse(http.StatusBadRequest, "allowed: rule and key, each once; key is a canonical subject like ip=192.0.2.1%2F32, empty for a rule with the empty key")
	}
	detector, running := c.in.working.detects()
	if !running {
		return refuse(http.StatusServiceUnavailable, "this process does not detect, or not yet")
	}
	routing := detector.Routing()
	if routing == nil {
		return refuse(http.StatusServiceUnavailable, "this process has no routing version yet")
	}
	at, code, problem := c.in.locate(routing, query.Get("rule"), traffic.Subject(query.Get("key")))
	if problem != "" {
		return refuse(code, problem)
	}
	ctx, cancel := context.WithTimeout(r.Context(), countersTimeout)
	defer cancel()
	look, err := detector.Look(ctx, at.partition, query.Get("rule"), traffic.Subject(query.Get("key")))
	switch {
	case err == nil:
		look.Windows = slices.DeleteFunc(look.Windows, func(w detectors.LookWindow) bool { return slices.Contains(at.elsewhere, w.Version) })
		return http.StatusOK, api.Count{Look: look, Partition: at.partition, Owner: detector.Owner()}
	case errors.Is(err, detect.ErrLooksBusy):
		return refuse(http.StatusTooManyRequests, "too many ask at once")
	case errors.Is(err, detect.ErrNotOwned):
		return http.StatusMisdirectedRequest, c.whose(ctx, at.partition)
	case errors.Is(err, detectors.ErrLook):
		return refuse(http.StatusNotFound, "no such rule counts, or key is no source of its key")
	}
	return refuse(http.StatusServiceUnavailable, fmt.Sprintf("the partition did not come to answer within %s", countersTimeout))
}

// whose says who has reported a partition.
func (c *counters) whose(ctx context.Context, partition int) NotCounted {
	out := NotCounted{Problem: "the partition is another process's", Partition: &partition}
	if p, found, err := c.in.OwnerOf(ctx, partition); err == nil && found {
		out.Owner, out.Address = p.Owner, p.Address
	}
	return out
}

// OwnerOf is the last report about a keyed partition of the live stream.
func (in *Installation) OwnerOf(ctx context.Context, partition int) (p partitions.ReportedPartition, found bool, err error) {
	return OwnerOf(ctx, in.History.Partitions, in.Stream.Name, partition)
}

// OwnerOf is the last report about a keyed partition of a stream.
func OwnerOf(ctx context.Context, store *partitions.Store, stream string, partition int) (p partitions.ReportedPartition, found bool, err error) {
	all, err := store.PartitionStates(ctx, stream)
	if err != nil {
		return p, false, err
	}
	i := slices.IndexFunc(all, func(p partitions.ReportedPartition) bool {
		return p.Side == ingest.SideKeyed && p.Partition == partition
	})
	if i < 0 {
		return p, false, nil
	}
	return all[i], true, nil
}

// located is where a source is counted.
type located struct {
	partition int
	elsewhere []int // versions of the rule that count it in another partition
}

// locate finds the keyed partition of a source, that of the version that acts where there are several.
func (in *Installation) locate(routing *rules.Routing, rule string, who traffic.Subject) (at located, code int, problem string) {
	known, fits := false, false
	for i := range routing.Rules {
		v := &routing.Rules[i]
		if v.ID != rule {
			continue
		}
		known = true
		partition, err := route.TargetOf(in.secret[:], in.Stream.Partitions.Keyed, rule, v.Key, who)
		switch {
		case err != nil:
		case !fits:
			at.partition, fits = partition, true
		case partition != at.partition:
			at.elsewhere = append(at.elsewhere, v.Number)
		}
	}
	switch {
	case !known:
		return at, http.StatusNotFound, "no rule of this name counts"
	case !fits:
		return at, http.StatusBadRequest, "key: allowed is a source of the rule's key, as a canonical subject like ip=192.0.2.1%2F32"
	}
	return at, 0, ""
}
