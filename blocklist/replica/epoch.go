package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/retry"
)

// The epoch of a namespace is the marker that the reconciler sets, at its first start and whenever Redis has forgotten.
// It is the proof that somebody keeps blocks here: an empty answer of another database, or of a namespace that is
// misspelt, looks like peace.
type epochState int32

const (
	epochUnasked    epochState = iota
	epochUnanswered            // its server has never answered about it
	epochMissing
	epochFound // once is enough: a flush later is no reason to doubt what is held
)

const (
	epochEvery   = time.Second     // between two looks for an epoch that has not been found
	epochTimeout = 2 * time.Second // of a look; nothing else waits for it
)

// NoEpochError says that a Redis has no epoch of the namespace, so that an empty blocklist is no proof that nobody is
// blocked.
type NoEpochError struct {
	Place   string // address, database and namespace
	Key     string // of the epoch
	Written bool   // there are modes or delta streams of the namespace
}

func (e *NoEpochError) Error() string {
	if e.Written {
		return fmt.Sprintf("%s: the epoch (%s) is missing, so blocks may be: "+
			"weir run with the stage enforce writes it when all of them are there", e.Place, e.Key)
	}
	return fmt.Sprintf("%s: this Redis has never had blocks of the namespace: "+
		"is it the right database, and the right namespace? weir run with the stage enforce writes the epoch (%s) when it starts", e.Place, e.Key)
}

// Public is what may be read by who asks without a password: it has addresses and names, and no secret.
func (e *NoEpochError) Public() string { return e.Error() }

var (
	errNotLoaded       = errors.New("the blocklist has not been loaded yet")
	errEpochUnasked    = errors.New("nobody has asked for the epoch of the namespace yet")
	errEpochUnanswered = errors.New("the server of the namespace's epoch does not answer, and others know nothing of it")
)

// Unready says why an empty answer of the Replica proves nothing: it is not loaded, or nothing shows that this Redis is
// the one that ENFORCE writes to, which is a *NoEpochError. One that begins at another installation's Redis is not
// loaded, and says so by *blocklist.ForeignError. Nil: all is well. A Replica that has found the epoch once
// does not ask for it again.
func (r *Replica) Unready() error {
	if !r.loaded.Load() {
		if err := r.Foreign(); err != nil {
			return err
		}
		return errNotLoaded
	}
	switch epochState(r.epoch.Load()) {
	case epochFound:
		return nil
	case epochMissing:
		return r.noEpoch()
	case epochUnanswered:
		// One master of a cluster is away, with the epoch. The modes, or the streams, prove as much.
		if r.written.Load() {
			return nil
		}
		return errEpochUnanswered
	}
	return errEpochUnasked
}

func (r *Replica) noEpoch() error {
	return &NoEpochError{Place: r.o.Store.Place(), Key: r.o.Store.EpochKey(), Written: r.written.Load()}
}

// findEpoch looks for the epoch until it is there. It has a loop of its own: a server that does not answer about it
// keeps nothing waiting.
func (r *Replica) findEpoch(ctx context.Context) {
	ticker := time.NewTicker(epochEvery)
	defer ticker.Stop()
	var trouble retry.Trouble
	for told := false; ; {
		found, err := r.lookForEpoch(ctx)
		if err != nil && ctx.Err() == nil && r.loaded.Load() { // else the load says that nobody answers
			trouble.Failed(r.o.Logger, "cannot look for the epoch of the namespace", err)
		}
		if err := (*NoEpochError)(nil); !told && errors.As(r.Unready(), &err) {
			told = true
			r.o.Logger.ErrorContext(ctx, "not ready: nothing shows that this Redis has the blocks", "error", err)
		}
		if found {
			if told {
				r.o.Logger.InfoContext(ctx, "the epoch of the namespace has appeared", "redis", r.o.Store.Place())
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (r *Replica) lookForEpoch(ctx context.Context) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, epochTimeout)
	defer cancel()
	switch found, err = r.from.HasMarker(ctx); {
	case err != nil:
		// That its server goes away afterwards is no proof that a missing epoch has come.
		r.epoch.CompareAndSwap(int32(epochUnasked), int32(epochUnanswered))
	case found:
		r.epoch.Store(int32(epochFound))
	default:
		r.epoch.Store(int32(epochMissing))
	}
	return found, err
}

// noteWritten remembers that there is something of the namespace beside the epoch.
func (r *Replica) noteWritten(at blocklist.Cursor) {
	for _, id := range at {
		if id != "" {
			r.written.Store(true)
			return
		}
	}
}
