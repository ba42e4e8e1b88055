package blocklist

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Names of delta streams that are no partition's. A partition's stream is named by its number.
const (
	streamModes     = "modes"
	streamReconcile = "reconcile"
)

// What an entry of a delta stream says.
const (
	opBlock   = "block"   // a block was written or raised; value: Block
	opRelease = "release" // a tombstone was put; value: Tombstone
	opMode    = "mode"    // a rule's mode changed; value: rules.ModeState
	opStream  = "stream"  // a stream was written to for the first time; value: its name
	opReload  = "reload"  // so much has changed that readers load everything anew
)

// deltasPerCall bounds one script call, which holds up its node while it runs.
const deltasPerCall = 200

// delta is one change of a block, as it is appended.
type delta struct {
	op string
	held
	value string
}

// appendDeltas appends changes to a stream, in order. base is the number that a stream without memory starts after: the
// writer's clock in microseconds.
func (s *Store) appendDeltas(ctx context.Context, stream string, base traffic.Time, deltas []delta) error {
	keys := []string{
		s.keys.Stream(stream), s.keys.Last(stream), s.keys.Streams(), s.keys.Stream(streamModes), s.keys.Last(streamModes),
	}
	for start := 0; start < len(deltas); start += deltasPerCall {
		args, err := numbering(base, stream, streamLength)
		if err != nil {
			return err
		}
		args = append(args, s.marks.old(stream, base), deltaAge.Milliseconds())
		for _, d := range deltas[start:min(start+deltasPerCall, len(deltas))] {
			args = append(args, d.op, string(d.subject), d.rule, d.value)
		}
		// One call after the other: their order is the stream's.
		err = s.run(ctx, []call{{script: s.scripts.delta, keys: keys, args: args}}, func(_ int, answer any) error {
			id, ok := answer.(string)
			if !ok {
				return badAnswer("delta", answer)
			}
			s.marks.note(stream, base, id)
			return nil
		})
		if err != nil {
			return fmt.Errorf("delta stream %s: %w", stream, err)
		}
	}
	return nil
}

// numbering gives the arguments that luaAppend needs, and the stream's name.
func numbering(base traffic.Time, stream string, length int) ([]any, error) {
	var token [4]byte
	if _, err := rand.Read(token[:]); err != nil {
		return nil, fmt.Errorf("delta token: %w", err)
	}
	return []any{int64(base), length, strconv.FormatUint(uint64(binary.BigEndian.Uint32(token[:])), 10), stream}, nil
}

// PublishModes makes the modes known to every gate: each is raised by its generation in the rules hash, and what changed
// goes out on the modes stream. It may be called by anybody who has just changed a mode; gates act on it at once.
func (s *Store) PublishModes(ctx context.Context, now traffic.Time, modes []rules.ModeState) error {
	keys := []string{s.keys.Rules(), s.keys.Stream(streamModes), s.keys.Last(streamModes), s.keys.Streams()}
	for start := 0; start < len(modes); start += deltasPerCall {
		args, err := numbering(now, streamModes, modesLength)
		if err != nil {
			return err
		}
		for _, m := range modes[start:min(start+deltasPerCall, len(modes))] {
			if !ruleID(m.Rule) {
				return fmt.Errorf("publish modes: %q is no rule id", m.Rule)
			}
			text, err := json.Marshal(m)
			if err != nil {
				return fmt.Errorf("publish mode of rule %s: %w", m.Rule, err)
			}
			args = append(args, m.Rule, m.Generation, string(text))
		}
		err = s.run(ctx, []call{{script: s.scripts.modes, keys: keys, args: args}}, func(int, any) error { return nil })
		if err != nil {
			return fmt.Errorf("publish modes: %w", err)
		}
	}
	return nil
}

// Modes reads the modes as they were last published. An entry that cannot be read is left out: its rule blocks nobody.
func (s *Store) Modes(ctx context.Context) ([]rules.ModeState, error) {
	hash, err := s.client.HGetAll(ctx, s.keys.Rules()).Result()
	if err != nil {
		return nil, fmt.Errorf("%s: read modes: %w", s.address, err)
	}
	out := make([]rules.ModeState, 0, len(hash))
	for rule, text := range hash {
		if m, err := decodeMode(rule, text); err == nil {
			out = append(out, m)
		}
	}
	return out, nil
}

func decodeMode(rule, text string) (rules.ModeState, error) {
	var m rules.ModeState
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return m, fmt.Errorf("mode of rule %q: %w", rule, err)
	}
	if m.Rule != rule || !ruleID(rule) {
		return m, fmt.Errorf("mode of rule %q names rule %q", rule, m.Rule)
	}
	return m, nil
}

// change is one entry of a delta stream, decoded.
type change struct {
	op        string
	subject   traffic.Subject
	block     Block
	tombstone Tombstone
	mode      rules.ModeState
}

// decodeChange reads the fields of an entry. An op that this build does not know is an error; the reader skips it.
func decodeChange(fields map[string]any) (change, error) {
	text := func(name string) string {
		v, _ := fields[name].(string)
		return v
	}
	c := change{op: text("op"), subject: traffic.Subject(text("identity")).Stored()}
	rule, value := text("rule"), text("value")
	var err error
	var inside string
	switch c.op {
	case opBlock:
		c.block, err = DecodeBlock([]byte(value))
		inside = c.block.Rule
	case opRelease:
		c.tombstone, err = DecodeTombstone([]byte(value))
		inside = c.tombstone.Rule
	case opMode:
		c.mode, err = decodeMode(rule, value)
		return c, err
	case opStream, opReload:
		return c, nil
	default:
		return c, fmt.Errorf("op %q, known: block, release, mode, stream, reload", c.op)
	}
	if err != nil {
		return c, err
	}
	if inside != rule {
		return c, fmt.Errorf("op %s of rule %q with a value of rule %q", c.op, rule, inside)
	}
	return c, held{subject: c.subject, rule: rule}.check()
}
