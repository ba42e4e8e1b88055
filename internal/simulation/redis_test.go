package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/traffic"
)

// keyspace is Redis: strings with an expiry, sets, hashes and streams. Scripts are run as they are, by the lab. The world's
// lock guards it.
type keyspace struct {
	w       *world
	strings map[string]stored
	sets    map[string]map[string]bool
	hashes  map[string]map[string]string
	streams map[string]*stream
	grown   chan struct{}   // closed, and made anew, when a stream grows
	scans   [][]string      // what is left of each SCAN, which the cursor names
	scripts map[string]bool // by SHA: loaded

	// For the judge of gates.
	names        blocklist.Keys
	kept         map[string]*judge.Kept   // by name
	about        map[string][]*judge.Kept // by subject
	subjects     []string                 // of kept, in the order in which they came
	asked        map[string]*asked        // by subject
	modes        map[string]judge.Mode
	lost, failed traffic.Time // when a delta was last lost, and a failover was
}

type stored struct {
	text    string
	expires int64 // in ms, 0: never
}

func newKeyspace(w *world) *keyspace {
	names, err := blocklist.NewKeys(namespace)
	if err != nil {
		panic(err) // a constant
	}
	k := &keyspace{
		w: w, strings: map[string]stored{}, sets: map[string]map[string]bool{}, hashes: map[string]map[string]string{},
		streams: map[string]*stream{}, grown: make(chan struct{}), scripts: map[string]bool{},
		names: names, kept: map[string]*judge.Kept{}, about: map[string][]*judge.Kept{}, asked: map[string]*asked{}, modes: map[string]judge.Mode{},
	}
	k.strings[names.Epoch()] = stored{text: "a reconciler has been here"}
	return k
}

func (k *keyspace) get(key string) (string, bool) {
	s, ok := k.strings[key]
	if ok && s.expires != 0 && s.expires <= time.Now().UnixMilli() {
		delete(k.strings, key)
		return "", false
	}
	return s.text, ok
}

func (k *keyspace) set(key, text string, expires int64) {
	k.strings[key] = stored{text, expires}
	k.note(key, text)
}

func (k *keyspace) del(key string) {
	if _, ok := k.get(key); ok {
		delete(k.strings, key)
		k.note(key, "")
	}
}

// note keeps every change of a block or tombstone for the judge.
func (k *keyspace) note(key, text string) {
	rest, ok := strings.CutPrefix(key, namespace+":v1:")
	kind, tagged, braced := strings.Cut(rest, ":{")
	subject, rule, named := strings.Cut(tagged, "}:")
	if !ok || !braced || !named || kind != "block" && kind != "tombstone" {
		return
	}
	c := judge.Change{At: int64(now()), Rule: rule, Subject: subject, Tombstone: kind == "tombstone", Removed: text == ""}
	if !c.Removed {
		var v struct {
			Generation             int64
			Hit                    string
			Since, Until, Released traffic.Time
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			k.w.say("key %s holds %q: %v", key, text, err)
		}
		c.Generation, c.Hit, c.Since, c.Until = v.Generation, v.Hit, int64(v.Since), int64(v.Until)
		if c.Tombstone {
			c.Since = int64(v.Released)
		}
	}
	k.w.changes = append(k.w.changes, c)
	k.stand(&c)
}

// stand keeps what a change leaves of a block.
func (k *keyspace) stand(c *judge.Change) {
	switch kept := k.keep(c.Subject, c.Rule); {
	case c.Tombstone:
		kept.Released = c.Since
	default:
		kept.Generation, kept.Until = c.Generation, c.Until
	}
}

// redisHook takes the commands of a process's client, so that none needs a connection.
type redisHook struct{ *host }

var _ redis.Hook = redisHook{}

// client makes a process's Redis client.
func client(hook redis.Hook) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", DisableIdentity: true, Protocol: 2,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	c.AddHook(hook)
	return c
}

// DialHook refuses: there is nothing to dial.
func (redisHook) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("simulated: no connection")
	}
}

// ProcessHook answers a single command.
func (r redisHook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return r.answer(ctx, []redis.Cmder{cmd}) }
}

// ProcessPipelineHook answers a pipeline: all of it, a part, or nothing; and the answer may be lost.
func (r redisHook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return r.answer
}

func (r redisHook) answer(ctx context.Context, cmds []redis.Cmder) error {
	c := lane(ctx)
	err := r.pass(ctx, c, 200*time.Microsecond, 10*time.Millisecond)
	done := len(cmds)
	if err == nil && r.fails(c, r.w.loss) {
		err = errFault
		if r.below(c, 3) > 0 {
			done = r.below(c, len(cmds)+1)
		}
	} else if err != nil {
		done = 0
	}
	flushed := r.fails(c, .03)
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if c == publishing && (err != nil || flushed) {
		r.disturb()
	}
	if flushed {
		clear(r.w.redis.scripts) // SCRIPT FLUSH, or a failover to a server that has none
	}
	var first error
	for _, cmd := range cmds[:done] {
		if e := r.w.redis.do(cmd); e != nil {
			cmd.SetErr(e)
			if first == nil {
				first = e
			}
		}
	}
	if err != nil {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
		return err
	}
	return first
}

func (k *keyspace) do(cmd redis.Cmder) error {
	args := cmd.Args()
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = fmt.Sprint(a)
	}
	switch cmd := cmd.(type) {
	case *redis.MapStringStringCmd:
		if words[0] == "hgetall" {
			cmd.SetVal(maps.Clone(k.hashes[words[1]]))
			return nil
		}
	case *redis.StringCmd:
		if words[0] == "get" {
			text, ok := k.get(words[1])
			if !ok {
				return redis.Nil
			}
			cmd.SetVal(text)
			return nil
		}
	case *redis.IntCmd:
		if _, ok := k.get(words[1]); words[0] == "exists" && len(words) == 2 {
			if ok {
				cmd.SetVal(1)
			}
			return nil
		}
	case *redis.SliceCmd:
		if words[0] == "mget" {
			values := make([]any, len(words)-1)
			for i, key := range words[1:] {
				if text, ok := k.get(key); ok {
					values[i] = text
				}
			}
			cmd.SetVal(values)
			return nil
		}
	case *redis.StringSliceCmd:
		if words[0] == "smembers" {
			cmd.SetVal(slices.Sorted(maps.Keys(k.sets[words[1]])))
			return nil
		}
	case *redis.ScanCmd:
		if words[0] == "scan" && len(words) == 6 { // cursor MATCH pattern COUNT n
			keys, next, err := k.scan(words[1], words[3])
			cmd.SetVal(keys, next)
			return err
		}
	case *redis.Cmd:
		if words[0] == "eval" {
			words[0], words[1] = "evalsha", k.w.lab.load(words[1])
			k.scripts[words[1]] = true
		}
		if words[0] == "evalsha" {
			if !k.scripts[words[1]] {
				return noScript{}
			}
			value, err := k.w.lab.run(k, words[1], words[2:])
			cmd.SetVal(value)
			return err
		}
	}
	return fmt.Errorf("the simulated redis does not know %v", words)
}

func (k *keyspace) add(set, member string) int64 {
	if k.sets[set] == nil {
		k.sets[set] = map[string]bool{}
	}
	if k.sets[set][member] {
		return 0
	}
	k.sets[set][member] = true
	return 1
}

// noScript is the server's answer to the SHA of a script that it has not.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }

// RedisError marks it as an answer of the server.
func (noScript) RedisError() {}
