package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// othersSteps bounds how many keys of a server are looked through for gates of other namespaces: a thousand with each
// step.
const othersSteps = 1000

// shownGates is how many gates with something wrong get a line of their own.
const shownGates = 8

// shownBuilds is how many builds of gates are named: they are what gates say.
const shownBuilds = 5

// redisUse is the part of an examination that is about who uses this Redis.
type redisUse struct{ *examination }

// redisNamespace is the check that says whose the namespace in Redis is.
const redisNamespace = "redis namespace"

// lookAtOwner says whose Redis is, where it is another installation's. What that one has there is not judged then.
func (e redisUse) lookAtOwner(ctx context.Context) []Finding {
	if e.cache == nil || !e.migrated() {
		return nil
	}
	mine, err := e.history.Streams.Installation(ctx)
	if err == nil {
		err = blocklist.NewOwnership(e.redis).RefuseForeign(ctx, mine)
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e.foreign):
		return []Finding{judgeOwner(e.foreign)}
	}
	return []Finding{failed(redisNamespace, err, ownRedis)}
}

const ownRedis = "give each installation a Redis, a database or a namespace of its own; weir migrate --take-redis " +
	"makes this one this installation's"

func judgeOwner(is *blocklist.ForeignError) Finding {
	return failing(redisNamespace, ownRedis, "%s %s", is.Place, is.Means())
}

// lookAtEpoch says whether this Redis is the one that ENFORCE writes to.
func (e redisUse) lookAtEpoch(ctx context.Context) []Finding {
	if e.cache == nil || e.foreign != nil {
		return nil
	}
	const name = redisNamespace
	found, err := e.redis.HasMarker(ctx)
	if err != nil {
		return []Finding{failed(name, err, "see redis-cli --cluster check")}
	}
	enforcers := 0
	if e.kafkaUp && !found {
		group, err := e.kafka.InspectGroup(ctx, ingest.Live.Group(e.conf.Namespace, ingest.StageEnforce))
		if err != nil {
			return []Finding{failed(name, err, "see the brokers' logs")}
		}
		enforcers = group.Members
	}
	return []Finding{judgeEpoch(e.redis.Place(), e.redis.EpochKey(), found, enforcers)}
}

func judgeEpoch(place, key string, found bool, enforcers int) Finding {
	const name = redisNamespace
	switch {
	case found:
		return fine(name, "%s: the stage enforce has been there", place)
	case enforcers > 0:
		return failing(name,
			"give this process, or those with enforce, the other's redis.url, redis.addresses and namespace (weir config show)",
			"%s: %s is missing, though %s: this is not their Redis, or it was flushed a moment ago",
			place, key, plural.Of(enforcers, "member")+" of enforce's group work")
	}
	return fine(name, "%s: %s is missing until weir run with enforce starts; gates are not ready before", place, key)
}

// lookAtModes says where Redis has later modes than the rule store, or lets a rule block that the store does not
// have. Nothing is said where they agree, or where Redis lacks what ENFORCE is about to tell it.
func (e redisUse) lookAtModes(ctx context.Context) []Finding {
	if e.cache == nil || e.routing == nil || e.foreign != nil {
		return nil
	}
	const name = "modes in redis"
	inRedis, err := e.redis.Modes(ctx)
	if err != nil {
		return []Finding{failed(name, err, "see redis-cli --cluster check")}
	}
	stored, err := e.history.Rules.Modes(ctx) // after Redis was read: what is published is stored before
	if err != nil {
		return []Finding{failed(name, err, "see PostgreSQL's log")}
	}
	found := append(judgeModes(inRedis, stored), e.lookAtSignatures(ctx)...)
	return append(found, e.lookAtNever(ctx)...)
}

// lookAtNever says which entries of the never-block list Redis has and the rule store has lost. Nothing is said where
// the store's are as new.
func (e redisUse) lookAtNever(ctx context.Context) []Finding {
	const name = "never-block list"
	told, err := e.redis.Never(ctx)
	if err != nil {
		return []Finding{failed(name, err, "see redis-cli --cluster check")}
	}
	stored, err := e.history.Orders.NeverEntries(ctx) // after Redis was read: what is published is stored before
	if err != nil {
		return []Finding{failed(name, err, "see PostgreSQL's log")}
	}
	return judgeNever(&told, &stored, e.clock())
}

func judgeNever(told, stored *blocklist.NeverEntries, now traffic.Time) (found []Finding) {
	const name = "never-block list"
	lost := told.Lost(stored, now)
	for i := range lost[:min(len(lost), shownGates)] {
		found = append(found, failing(name, "before weir migrate, or weir run with enforce, replaces what Redis has: "+
			lost[i].Command(),
			"Redis has %s, and the rule store does not: PostgreSQL has come back older", lost[i].Prefix))
	}
	if more := len(lost) - shownGates; more > 0 {
		found = append(found, failing(name, "weir migrate lists all of them, each with the command that adds it again",
			"%d more like these", more))
	}
	return found
}

func judgeModes(inRedis, stored []rules.ModeState) (found []Finding) {
	byRule := make(map[string]*rules.ModeState, len(stored))
	for i := range stored {
		byRule[stored[i].Rule] = &stored[i]
	}
	for i := range inRedis {
		m := &inRedis[i]
		s := byRule[m.Rule]
		switch {
		case rules.IsByHand(m.Rule):
		case s == nil && m.Mode.Blocks():
			found = append(found, failing("modes in redis", "run weir migrate, which switches it off there",
				"rule %s: Redis has generation %d (%s), the rule store has no such rule", m.Rule, m.Generation, m.Mode))
		case s != nil && m.After(s):
			found = append(found, failing("modes in redis",
				"run weir migrate, which numbers the rule store's above; and look who writes to Redis beside weir",
				"rule %s: Redis has generation %d (%s, version %d), the rule store %d (%s, version %d): "+
					"PostgreSQL has come back older, or somebody else has written to Redis",
				m.Rule, m.Generation, m.Mode, m.Newest, s.Generation, s.Mode, s.Newest))
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Found, b.Found) })
	return found
}

// lookAtGates says which gates there are, and what is wrong with them.
func (e redisUse) lookAtGates(ctx context.Context) []Finding {
	if e.cache == nil || e.foreign != nil {
		return nil
	}
	book := blocklist.NewGateBook(e.redis)
	listing, err := book.List(ctx)
	if err != nil {
		return []Finding{failed("gates", err, "see docs/security.md for the rights of weir-operator at Redis")}
	}
	identity := ""
	if e.routing != nil {
		identity = e.routing.Identity.Fingerprint()
	}
	found := judgeGates(&listing, identity, e.build)
	others, whole, err := book.Others(ctx, othersSteps)
	if err != nil {
		return append(found, failed("gates of others", err, "try again with more --timeout"))
	}
	return append(found, judgeOtherGates(others, whole, e.conf.Namespace)...)
}

// judgeGates sums up the gates, and gives those a line that may not do what the installation asks.
func judgeGates(listing *blocklist.GateListing, identity, build string) []Finding {
	const name = "gates"
	if len(listing.Gates) == 0 && listing.Unreadable == 0 {
		return []Finding{fine(name,
			"none has told of itself within 30s: none runs at this Redis, or it is of a build before, or may not write there")}
	}
	text := plural.Of(len(listing.Gates), "gate")
	builds, most, observing := map[string]int{}, 0, 0
	for i := range listing.Gates {
		g := &listing.Gates[i]
		builds[g.Build]++
		most = max(most, g.Blocks)
		if g.Observing {
			observing++
		}
	}
	text += ", " + plural.Of(most, "block") + " at most"
	if observing > 0 {
		text += fmt.Sprintf("; %d refuse nobody, since they observe", observing)
	}
	if _, same := builds[build]; len(builds) > 1 || !same {
		named := slices.Sorted(maps.Keys(builds))
		for _, other := range named[:min(len(named), shownBuilds)] {
			text += fmt.Sprintf("; %s of build %s", plural.Of(builds[other], "gate"), terminal.Cell(other))
		}
		if more := len(named) - shownBuilds; more > 0 {
			text += fmt.Sprintf("; and %s more", plural.Of(more, "build"))
		}
		text += ", this is " + build
	}
	if listing.Unreadable > 0 {
		text += fmt.Sprintf("; %d tell what this build cannot read", listing.Unreadable)
	}
	return append([]Finding{fine(name, "%s", text)}, doubtedGates(listing.Gates, identity)...)
}

// doubtedGates has a line for each doubt, up to a bound.
func doubtedGates(gates []blocklist.GateReport, identity string) (found []Finding) {
	more := 0
	for i := range gates {
		for _, doubt := range gates[i].Doubts(identity) {
			if len(found) == shownGates {
				more++
				continue
			}
			found = append(found, judgeDoubt("gate "+gates[i].Instance, doubt))
		}
	}
	if more > 0 {
		found = append(found, warning("gates", "see GET /api/v1/health for all of them", "%d more like these", more))
	}
	return found
}

func judgeDoubt(name string, doubt blocklist.Doubted) Finding {
	switch doubt.Kind {
	case blocklist.GateUnready:
		return failing(name, "see weir ready on its machine, and docs/gate.md#the-right-redis", "it %s", doubt.Text)
	case blocklist.GateForeign:
		return failing(name, "give it its own installation's Redis, or, if this one is right now, start it again; see "+
			"docs/gate.md#the-right-redis", "it %s", doubt.Text)
	case blocklist.GateClock:
		if doubt.Minor {
			return warning(name, clockRemedy, "it %s", doubt.Text)
		}
		return failing(name, clockRemedy, "it %s", doubt.Text)
	case blocklist.GateUnsigned:
		return failing(name, "look who writes to Redis beside weir; give the gate the gate.modes_key that weir gate "+
			"trust prints, and have ENFORCE run", "it %s", doubt.Text)
	case blocklist.GateIdentity:
		return failing(name,
			"give it the identity of the stages' configuration and restart it; weir migrate, where the gate's is the right one",
			"it %s", doubt.Text)
	case blocklist.GateStale:
		return warning(name, "see its log, and the line between it and Redis", "it %s", doubt.Text)
	default:
		return warning(name, "bring the masters of Redis back that do not answer it", "it %s", doubt.Text)
	}
}

// judgeOtherGates says of which other namespaces there are gates in the same database: that may be meant, or a typing
// error.
func judgeOtherGates(others []blocklist.OtherGates, whole bool, namespace string) (found []Finding) {
	for _, o := range others {
		name, unready := "gates of "+o.Namespace, 0
		for i := range o.Gates {
			if o.Gates[i].Unready != "" {
				unready++
			}
		}
		switch {
		case unready > 0:
			found = append(found, warning(name, "if they are this installation's, set namespace: "+namespace+
				" for them",
				"%s in this database, and %d of them not ready: nobody writes blocks of that namespace here",
				plural.Of(len(o.Gates), "gate"), unready))
		case o.Err != nil:
			found = append(found, fine(name, "there are some in this database, and they cannot be read from here"))
		default:
			found = append(found, fine(name, "%s in this database, of another installation", plural.Of(len(o.Gates),
				"gate")))
		}
	}
	if !whole {
		found = append(found, fine("gates of others", "only the first million keys were looked through"))
	}
	return found
}
