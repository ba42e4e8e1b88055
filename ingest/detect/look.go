package detect

import (
	"context"
	"errors"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// maxLooks bounds the questions that wait for an answer, and so those answered between two foldings.
const maxLooks = 4

// Errors of Look.
var (
	ErrLooksBusy = errors.New("too many ask at once")
	ErrNotOwned  = errors.New("the keyed partition is not this process's")
)

// look is a question about one key. The session's goroutine alone answers it, between foldings.
type look struct {
	ctx       context.Context // an asker who has gone is not answered
	partition int
	rule      string
	subject   traffic.Subject
	answer    chan lookAnswer // room for one
}

type lookAnswer struct {
	look detectors.Look
	err  error
}

// Look asks what a keyed partition has counted of a source under a rule, by the newest routing version that this process knows. It
// waits until the partition stands between two records, for as long as ctx allows. It is safe for concurrent use, and never delays
// folding by more than a few look-ups of one key.
//
// The error is ErrLooksBusy where as many questions wait as may, ErrNotOwned, detectors.ErrLook or ctx's.
func (d *Detector) Look(ctx context.Context, partition int, rule string, subject traffic.Subject) (detectors.Look, error) {
	q := &look{ctx: ctx, partition: partition, rule: rule, subject: subject, answer: make(chan lookAnswer, 1)}
	select {
	case d.looks <- q:
	default:
		return detectors.Look{}, ErrLooksBusy
	}
	select {
	case a := <-q.answer:
		return a.look, a.err
	case <-ctx.Done():
		return detectors.Look{}, ctx.Err()
	}
}

// Routing is the newest routing version that this process knows; nil for none yet. It must not be changed.
func (d *Detector) Routing() *rules.Routing { return d.routings.newest() }

// Owner is the name under which this process holds its partitions.
func (d *Detector) Owner() string { return d.opt.Owner }

// answerLooks answers what is asked, maxLooks questions at most.
func (d *Detector) answerLooks() {
	for range maxLooks {
		select {
		case q := <-d.looks:
			if q.ctx.Err() == nil {
				q.answer <- d.answer(q)
			}
		default:
			return
		}
	}
}

func (d *Detector) answer(q *look) (a lookAnswer) {
	o := d.memory[q.partition]
	if o == nil {
		return lookAnswer{err: ErrNotOwned}
	}
	r := d.routings.newest()
	if r == nil {
		return lookAnswer{err: detectors.ErrLook}
	}
	a.look, a.err = detectors.LookAt(o.state, r, q.rule, q.subject)
	return a
}
