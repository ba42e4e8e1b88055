package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/signing"
)

// shownRules is how many rules one finding names.
const shownRules = 5

// lookAtSignatures says which modes in Redis the rule store has not signed: gates that ask for that hold their rules as
// in shadow, and others act on them.
func (e redisUse) lookAtSignatures(ctx context.Context) []Finding {
	const name = "modes in redis"
	if !e.migrated() {
		return nil
	}
	seed, err := e.history.Streams.ModesSeed(ctx)
	if err != nil {
		return []Finding{failed(name, err, "give this role SELECT on mode_keys, as docs/security.md has it")}
	}
	signer, err := signing.NewSigner(seed, e.conf.Namespace)
	if err != nil {
		return []Finding{failed(name, err, "restore the table mode_keys")}
	}
	texts, err := blocklist.NewFeed(e.redis).ModeTexts(ctx)
	if err != nil {
		return []Finding{failed(name, err, "see redis-cli --cluster check")}
	}
	return judgeSignatures(texts, signer.Trust)
}

func judgeSignatures(texts map[string]string, trust *signing.Trust) (found []Finding) {
	var unsigned []string
	for _, rule := range slices.Sorted(maps.Keys(texts)) {
		m, err := blocklist.DecodeMode(rule, texts[rule])
		if err != nil {
			continue
		}
		switch err := trust.Check(rule, texts[rule]); {
		case errors.Is(err, signing.ErrForged):
			found = append(found, failing("modes in redis", "look who writes to Redis beside weir; ENFORCE writes the "+
				"rule store's within two seconds",
				"rule %s: Redis has generation %d (%s), and %v: gates without gate.modes_key act on it",
				rule, m.Generation, m.Mode, err))
		case err != nil:
			unsigned = append(unsigned, rule)
		}
	}
	if n := len(unsigned); n > 0 {
		text := strings.Join(unsigned[:min(n, shownRules)], ", ")
		if n > shownRules {
			text += fmt.Sprintf(" and %d more", n-shownRules)
		}
		found = append(found, warning("modes in redis", "have weir run with enforce, of this build, which signs them "+
			"within seconds; where it runs, look who writes to Redis beside it",
			"not signed by the rule store: %s; gates with gate.modes_key hold these rules as in shadow, others act on "+
				"them", text))
	}
	return found
}
