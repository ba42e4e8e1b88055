package replica

import (
	"context"
	"sync"

	"github.com/weirhq/weir/blocklist"
)

// owner is the installation whose blocks the Replica has. A Redis that is another one's is to it as one that does not
// answer: it takes nothing from there, and goes on with what it holds.
type owner struct {
	mu      sync.Mutex
	mine    string // "": the first that is met
	foreign error  // *blocklist.ForeignError; nil: Redis is mine, or nobody has said whose it is
}

// judge says whether Redis may be read that is is's.
func (o *owner) judge(is blocklist.Owner, place func() string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.foreign = nil
	switch {
	case is.Format != blocklist.ValueFormat: // nobody's, as after a flush, or said in a way that this build cannot read
	case o.mine == "":
		o.mine = is.Installation
	case o.mine != is.Installation:
		o.foreign = &blocklist.ForeignError{Place: place(), Owner: is, Mine: o.mine}
	}
	return o.foreign
}

func (o *owner) refusal() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.foreign
}

// Foreign is a *blocklist.ForeignError while Redis is another installation's: what is known holds, and nothing of what
// stands there is taken over. Nil: it is not.
func (r *Replica) Foreign() error { return r.owner.refusal() }

// refuseForeign looks whose Redis is.
func (r *Replica) refuseForeign(ctx context.Context) error {
	is, err := r.from.Owner(ctx)
	if err != nil {
		return err
	}
	return r.owner.judge(is, r.o.Store.Place)
}
