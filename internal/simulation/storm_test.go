package simulation

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist/reconcile"
	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/traffic"
)

// storm is what befalls the delta streams: attacks, with more changes than a stream has room for, at once or over some
// seconds, and failovers that lose the last ones.
func (w *world) storm(ctx context.Context) {
	d := roll(w.seed, 6)
	for ctx.Err() == nil && !w.calm.Load() {
		rest(ctx, d.pause(5*time.Second))
		x, apart := d.below(10), d.span(0, 100*time.Millisecond)
		if x < 4 {
			w.failover(ctx, d)
			continue
		}
		if x < 6 {
			apart = 0
		}
		for range 5 + d.below(2*streamKept) {
			if apart > 0 {
				rest(ctx, apart)
			}
			w.mu.Lock()
			if !w.calm.Load() {
				w.redis.attack(d)
			}
			w.mu.Unlock()
		}
	}
}

// failover loses what the delta streams were given last. A gate that had not read it has no way to know; but a reconciler
// notices the failover, and asks for a load.
func (w *world) failover(ctx context.Context, d *dice) {
	w.mu.Lock()
	lost := !w.calm.Load() && w.redis.failover(d.span(0, 2*time.Second))
	w.mu.Unlock()
	if !lost {
		return
	}
	rest(ctx, d.span(0, reconcile.Interval))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.redis.publish(d, "reconcile", "op", "reload")
	w.redis.lost = now()
}

// attack writes a block of somebody of its own, or releases him, and tells of it, as ENFORCE does.
func (k *keyspace) attack(d *dice) {
	subject := "ip=198.51.100." + strconv.Itoa(1+d.below(20)) + "%2F32"
	at, until := now(), now().Add(d.span(3*time.Second, 40*time.Second))
	c := judge.Change{Rule: blockOn, Subject: subject}
	op, value := "block", `{"v":1,"action":"block","scope":"match","rule":"`+blockOn+`","generation":1,"hit":"`+hitOf(d)+
		`","since":"`+at.String()+`","until":"`+until.String()+`"}`
	key := k.names.Block(traffic.Subject(subject), blockOn)
	switch kept := k.keep(subject, blockOn); {
	case d.below(3) == 0:
		until = at.Add(time.Hour)
		op, value = "release", `{"v":1,"action":"release","rule":"`+blockOn+`","released":"`+at.String()+`","until":"`+until.String()+`"}`
		delete(k.strings, key)
		k.stand(&c)
		key = k.names.Tombstone(traffic.Subject(subject), blockOn)
		c.Tombstone, c.Since = true, int64(at)
	case kept.Released >= int64(at), kept.Until >= int64(until):
		return
	default:
		c.Generation, c.Until = 1, int64(until)
	}
	k.strings[key] = stored{value, int64(until) / 1000}
	k.stand(&c)
	k.publish(d, "0", "op", op, "identity", subject, "rule", blockOn, "value", value)
}

// publish appends to a delta stream as luaDelta does.
func (k *keyspace) publish(d *dice, stream string, fields ...string) {
	n := uint64(now())
	last, known := k.get(k.names.Last(stream))
	if known {
		number, _, _ := strings.Cut(last, "-")
		var err error
		if n, err = strconv.ParseUint(number, 10, 64); err != nil {
			k.w.say("newest of stream %s: %q", stream, last)
		}
	}
	id := strconv.FormatUint(n+1, 10) + "-" + strconv.Itoa(d.below(1<<30))
	k.append(k.names.Stream(stream), id, append([]string{"prev", last}, fields...))
	k.strings[k.names.Last(stream)] = stored{text: id}
	if stream == "modes" {
		return
	}
	k.stream(k.names.Stream(stream)).expires = now().Add(2 * time.Minute)
	if k.add(k.names.Streams(), stream) == 1 {
		k.publish(d, "modes", "op", "stream", "value", stream)
	}
}

func hitOf(d *dice) string {
	s := "00000000000000000000000000000000" + strconv.FormatUint(d.next(), 16)
	return s[len(s)-32:]
}
