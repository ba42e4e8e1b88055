package acts

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/history/postgres"
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
	Subject string `json:"subject"` // FIELD=VALUE
	Reason  string `json:"reason"`
	DryRun  bool   `json:"dry_run,omitempty"` // only says what would be erased
	// Wait is how long the answer waits for the erasure, which goes on after that; 0: until it ends, and it ends with who asks.
	Wait time.Duration `json:"-"`
	// Progress, where it is set, is told what is looked through.
	Progress func(step string) `json:"-"`
}

// The least lengths of prefixes that may be a person's: a slip of the keyboard shall not empty history.
const (
	leastPrefix4 = 24
	leastPrefix6 = 48
)

// mayErase checks who asks, and reads who is meant.
func (s *Service) mayErase(actor access.Actor, r *EraseRequest) (erasure.Person, error) {
	if err := CheckReason(r.Reason); err != nil {
		return erasure.Person{}, err
	}
	if err := access.May(actor, access.Erase, ""); err != nil {
		return erasure.Person{}, err
	}
	person, err := readPerson(r.Subject)
	if err != nil {
		return person, err
	}
	if s.o.Erasing == nil {
		return person, errors.New("nothing is erased here: this installation has no history")
	}
	return person, nil
}

// unerased says of a store that went away what that means for an erasure.
func unerased(err error) error {
	var away *postgres.UnreachableError
	if errors.As(err, &away) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || err != nil && postgres.Broken(err) {
		return &AwayError{Store: "PostgreSQL", Consequence: "all is erased at once, or nothing: the audit trail has an entry of an erasure that was done. It can be asked for again", Cause: err}
	}
	return err
}

// readPerson reads FIELD=VALUE, see rules.TypedSource.
func readPerson(text string) (erasure.Person, error) {
	fields := make([]string, traffic.NumFields)
	for f := range traffic.NumFields {
		fields[f] = f.String()
	}
	_, _, typed := traffic.CutSource(text)
	subject, name, value := rules.TypedSource(text)
	if values, err := subject.Values(); err == nil && len(values) == 1 { // an address with its prefix
		name, value = values[0].Field, values[0].Value
	} else if subject != "" {
		return erasure.Person{}, &Invalid{Field: "subject", Got: text, Allowed: "FIELD=VALUE of one field; " +
			"a value that has & in it is written as a subject has it, with %26"}
	}
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
	if typed != value {
		p.Typed = typed
	}
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
	p.Value, p.Typed = p.Prefix.String(), ""
	return p, nil
}

// shownAs are the pseudonyms by which pages show a person, to whom they show pseudonyms.
func shownAs(masker *access.Masker, p *erasure.Person) []string {
	shown := masker.Value(access.Actor{}, p.Field.String(), p.Value)
	if shown == p.Value {
		return nil
	}
	return []string{shown}
}
