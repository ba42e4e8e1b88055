package demo

import (
	_ "embed" // for the rules
	"slices"
	"time"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/traffic"
)

//go:embed rules.yaml
var rulesYAML []byte

//go:embed watched.yaml
var watchedYAML []byte

// Rules is the rule documents of a demo that is judged, as YAML.
func Rules() []byte { return slices.Clone(rulesYAML) }

// WatchedRules is those of a demo that people watch.
func WatchedRules() []byte { return slices.Clone(watchedYAML) }

// WatchedPromotions lists the rules that such a demo promotes, in order. The others stay in shadow, with their evidence.
func WatchedPromotions() []string { return []string{ruleTokens, ruleSignIn} }

// KnownGood is how weir knows the demo's clients who pay from what the gateway says of them.
const KnownGood = `event.plan == "` + planPaid + `"`

// IdentityMap is what the demo's gateway vouches for: the address that its one proxy has written into X-Forwarded-For,
// and the device that it has looked up.
func IdentityMap() traffic.IdentityMap {
	return traffic.IdentityMap{
		IP:     traffic.IPSource{TrustedProxies: traffic.TrustedProxies{Hops: 1}, V4: traffic.DefaultV4, V6: traffic.DefaultV6},
		Device: traffic.FieldSource{Header: headerDevice, Vouched: true},
	}
}

// The rules once more, as the truth reads them: written by hand, so that a mistake in reading rule documents shows too.
const (
	ruleTokens  = "guest-tokens"
	ruleSignIn  = "sign-in-burst"
	ruleCatalog = "catalog-scraper"

	limitTokens  = 2
	limitSignIn  = 20
	limitCatalog = 30

	window   = 3 * time.Second
	blockFor = 5 * time.Second

	pathTokens  = "/v1/guest-tokens"
	pathSignIn  = "/v1/sign-in"
	pathCatalog = "/v1/catalog/"
)

// Allowance is the most that may lie between the request that was too many and its block at the gate. It is also the
// most that Judge can be asked to allow: what passes until then must be out of the window when the block ends, or a
// source that comes back would go on where it was.
const Allowance = blockFor - window

func truthRules() []oracle.Rule {
	rule := func(id, method, path string, device bool, limit int) oracle.Rule {
		return oracle.Rule{
			ID: id, Method: method, Path: path, Device: device, Limit: limit,
			Window: window.Microseconds(), TTL: blockFor.Microseconds(),
		}
	}
	return []oracle.Rule{
		rule(ruleTokens, "POST", pathTokens, true, limitTokens),
		rule(ruleSignIn, "POST", pathSignIn, false, limitSignIn),
		rule(ruleCatalog, "GET", pathCatalog+"*", false, limitCatalog),
	}
}

// RuleIDs lists the rules of a demo that is judged, all of which are promoted.
func RuleIDs() []string { return []string{ruleTokens, ruleSignIn, ruleCatalog} }
