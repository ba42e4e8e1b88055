package blocklist

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/weirhq/weir/traffic"
)

// DefaultPerAddress is how many blocks of one address and rule are in force at a time when the configuration does not say.
const DefaultPerAddress = 1000

// Crowds bounds how many blocks one client can have written. Where a rule's block key holds a field that the client merely
// claims, each claim makes another key: one address that goes on claiming would fill Redis, and the memory of every gate.
type Crowds struct {
	// PerAddress is how many blocks of one address and rule may be in force at a time; 0: any number. The address is cut as
	// the rule's block key says.
	PerAddress int
	// Claimed lists the fields that the gateway does not vouch for.
	Claimed []traffic.Field
}

// Bound makes s refuse blocks beyond what c allows. It is called before s is used.
func (s *Store) Bound(c Crowds) { s.crowds = c }

// luaAdmit counts a block among those of its address, in a sorted set of expiries, unless there are too many. The same
// block counts once, however often it is asked for, by whichever process.
//
//	KEYS  1 sorted set
//	ARGV  1 how many may be in force, 2 the block's name, 3 its expiry in ms, 4 "extend" to raise the expiry only
//
// It answers "counted" where the block is counted already, "admitted" where it is from now on, "crowded", or "full" where
// Redis has no memory for one more.
const luaAdmit = luaFull + `
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ends = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or 0)
if ends > now then
  if ends >= tonumber(ARGV[3]) then return 'counted' end
  redis.call('ZREM', KEYS[1], ARGV[2])
elseif ARGV[4] == 'extend' then
  return 'counted'
elseif redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', now), '+inf') >= tonumber(ARGV[1]) then
  return 'crowded'
end
local refused = refusal(redis.pcall('ZADD', KEYS[1], ARGV[3], ARGV[2]))
if refused then return refused end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', tonumber(last[2])))
return ends > now and 'counted' or 'admitted'
`

// luaLeave counts a block no more.
//
//	KEYS  1 sorted set
//	ARGV  1 the block's name
const luaLeave = `
return redis.call('ZREM', KEYS[1], ARGV[1])
`

// What the script answers beside outcomeCrowded and outcomeFull.
const (
	outcomeAdmitted outcome = "admitted"
	outcomeCounted  outcome = "counted"
)

// crowd is where a block is counted.
type crowd struct {
	index int // in the list that it was made of
	key   string
	name  string
}

// crowd finds where the block h is counted; false where clients cannot choose its key. Blocks of another generation of the
// rule's mode are not in force, and are counted elsewhere.
func (s *Store) crowd(index int, h held, generation int64) (crowd, bool) {
	if s.crowds.PerAddress <= 0 {
		return crowd{}, false
	}
	w, err := parseWho(h.subject)
	if err != nil || !w.prefix.IsValid() || !w.hasAny(s.crowds.Claimed) {
		return crowd{}, false
	}
	address, _ := cutPart(string(h.subject)) // ip is the first field of any subject
	sum := sha256.Sum256([]byte(h.subject))
	return crowd{index, s.keys.Crowd(traffic.Subject(address), h.rule, generation), base64.RawURLEncoding.EncodeToString(sum[:16])}, true
}

// admit counts the raises that are bounded and have no outcome yet, and gives those that find no room their outcome. It is one
// pipeline, and none where nothing is bounded. It returns those that were not counted before.
func (s *Store) admit(ctx context.Context, raises []raise, out []outcome) ([]crowd, error) {
	var bound, fresh []crowd
	var calls []call
	for i := range raises {
		r := &raises[i]
		c, ok := s.crowd(i, r.held, r.block.Generation)
		if !ok || out[i] != "" {
			continue
		}
		out[i] = outcomeUnreached // unless there is an answer
		bound = append(bound, c)
		calls = append(calls, call{
			script: s.scripts.admit, keys: []string{c.key},
			args: []any{s.crowds.PerAddress, c.name, expiryMS(r.block.Until), r.scope()},
		})
	}
	err := s.run(ctx, calls, func(i int, answer any) error {
		switch text, _ := answer.(string); outcome(text) {
		case outcomeCounted:
			out[bound[i].index] = ""
		case outcomeAdmitted:
			out[bound[i].index] = ""
			fresh = append(fresh, bound[i])
		case outcomeCrowded, outcomeFull:
			out[bound[i].index] = outcome(text)
		default:
			return badAnswer("admit", answer)
		}
		return nil
	})
	return fresh, err
}

// crowdsOf finds where the blocks of releases are counted.
func (s *Store) crowdsOf(releases []release) (bound []crowd) {
	for i := range releases {
		if releases[i].generation == 0 {
			continue
		}
		if c, ok := s.crowd(i, releases[i].held, releases[i].generation); ok {
			bound = append(bound, c)
		}
	}
	return bound
}

// leavePatience bounds leave: what comes after it is told to gates.
const leavePatience = 100 * time.Millisecond

// leave counts those of bound no more that over names. Nothing fails by it: what stays counted makes room when the block would
// have ended.
func (s *Store) leave(ctx context.Context, bound []crowd, over func(i int) bool) {
	var calls []call
	for _, c := range bound {
		if over(c.index) {
			calls = append(calls, call{script: s.scripts.leave, keys: []string{c.key}, args: []any{c.name}})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	_ = s.run(ctx, calls, func(int, any) error { return nil })
}
