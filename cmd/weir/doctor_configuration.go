package main

import (
	"context"
	"slices"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// lookAtConfiguration says where the configuration comes from; that it can be read is known already.
func (e *examination) lookAtConfiguration(context.Context) []finding {
	return []finding{fine("configuration", "%s; namespace %s", e.conf.Origins, e.conf.Namespace)}
}

// lookAtIdentities says which identities nobody vouches for, and which rules believe them all the same.
func (e *examination) lookAtIdentities(context.Context) []finding {
	identity, known := e.conf.Identity, []rules.Version(nil)
	if e.routing != nil {
		identity, known = e.routing.Identity, e.routing.Rules
	}
	var claimed []string
	believers := map[string]bool{}
	for f := range traffic.NumFields {
		if identity.Vouched(f) {
			continue
		}
		claimed = append(claimed, f.String())
		for i := range known {
			if keyedOn(&known[i], f) {
				believers[known[i].ID] = true
			}
		}
	}
	trusted := judgeTrustedProxies(identity.IP.TrustedProxies)
	switch {
	case len(claimed) == 0:
		return []finding{fine("identities", "the gateway vouches for all of them"), trusted}
	case len(believers) == 0:
		return []finding{fine("identities", "claimed by the client, not vouched for: %s; no rule counts by them", strings.Join(claimed, ", ")), trusted}
	}
	return []finding{warning("identities",
		"let the gateway verify them and set identity.FIELD.vouched, or count by what it vouches for as well: who makes up a new one each time is never over",
		"claimed by the client, not vouched for: %s; counted by all the same: %s", strings.Join(claimed, ", "), terminal.FirstFew(sorted(believers))), trusted}
}

// judgeTrustedProxies warns where the proxies in front are counted, and not known.
func judgeTrustedProxies(p traffic.TrustedProxies) finding {
	const name = "trusted proxies"
	switch {
	case len(p.Prefixes) > 0:
		return fine(name, "X-Forwarded-For is believed of %s", p)
	case p.Hops == 0:
		return fine(name, "none: a client's address is that of the connection")
	}
	return warning(name, "name them, with identity.ip.trusted_proxies: [10.0.0.0/8, 192.0.2.7], or whatever their addresses are",
		"as many as %d, whoever they are: who reaches the gateway past them is taken for any address that X-Forwarded-For claims", p.Hops)
}

// keyedOn reports whether a rule's key has the field.
func keyedOn(v *rules.Version, f traffic.Field) bool {
	return slices.ContainsFunc(v.Key, func(k traffic.KeyField) bool { return k.Field == f })
}

func sorted(set map[string]bool) []string {
	names := make([]string, 0, len(set))
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
