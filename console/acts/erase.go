package acts

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Erasing takes people out of history.
type Erasing interface {
	Erase(ctx context.Context, r erasure.Request) (erasure.Done, error)
}

var _ Erasing = (*erasure.Eraser)(nil)

// EraseRequest asks that history forget a person.
type EraseRequest struct {
	Subject string // FIELD=VALUE
	Reason  string
	DryRun  bool // only says what would be erased
}

// The least lengths of prefixes that may be a person's: a slip of the keyboard shall not empty history.
const (
	leastPrefix4 = 24
	leastPrefix6 = 48
)

// Erase takes a person out of history, audited under a pseudonym. It releases nobody.
func (s *Service) Erase(ctx context.Context, actor access.Actor, r EraseRequest) (erasure.Done, error) {
	if err := CheckReason(r.Reason); err != nil {
		return erasure.Done{}, err
	}
	if err := access.May(actor, access.Erase, ""); err != nil {
		return erasure.Done{}, err
	}
	person, err := readPerson(r.Subject)
	if err != nil {
		return erasure.Done{}, err
	}
	if s.o.Erasing == nil {
		return erasure.Done{}, errors.New("nothing is erased here: this installation has no history")
	}
	done, err := s.o.Erasing.Erase(ctx, erasure.Request{Person: person, By: actor.Name, Via: actor.Via, Reason: r.Reason, DryRun: r.DryRun})
	if err == nil && !r.DryRun {
		s.log(actor, access.Erase, "subject "+done.Pseudonym)
	}
	return done, err
}

// readPerson reads FIELD=VALUE.
func readPerson(text string) (erasure.Person, error) {
	fields := make([]string, traffic.NumFields)
	for f := range traffic.NumFields {
		fields[f] = f.String()
	}
	name, value, _ := strings.Cut(text, "=")
	field, known := traffic.ParseField(name)
	if !known {
		allowed := strings.Join(fields, ", ") + ", each with =VALUE"
		if near := rules.Nearest(name, fields); near != "" {
			allowed += "; did you mean " + near + "?"
		}
		return erasure.Person{}, &Invalid{Field: "subject", Got: text, Allowed: allowed}
	}
	if value == "" {
		return erasure.Person{}, &Invalid{Field: "subject", Got: text, Allowed: "a value behind " + name + "="}
	}
	p := erasure.Person{Field: field, Value: value}
	if field != traffic.FieldIP {
		return p, nil
	}
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		address, aerr := netip.ParseAddr(value)
		if aerr != nil {
			return p, &Invalid{Field: "subject", Got: text, Allowed: "an address (192.0.2.1) or prefix (2001:db8::/64) behind ip="}
		}
		address = address.Unmap().WithZone("")
		prefix = netip.PrefixFrom(address, address.BitLen())
	}
	least := leastPrefix6
	if prefix.Addr().Is4() {
		least = leastPrefix4
	}
	if prefix.Bits() < least {
		return p, &Invalid{Field: "subject", Got: text, Allowed: "a prefix that may be one person's: /24 or longer, of IPv6 /48 or longer"}
	}
	p.Prefix = prefix.Masked()
	p.Value = p.Prefix.String()
	return p, nil
}
