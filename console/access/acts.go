package access

import (
	"fmt"
	"slices"
)

// Act is one thing that people do. It is also the word for it in messages and in the description of routes.
type Act string

// What people do. An act that is not in this list nobody may do.
const (
	Public Act = "public" // needs nobody to be signed in: the sign-in itself, its style sheet, whether the process lives

	View Act = "view" // pages, and the answers of the API that tell what is
	Self Act = "self" // what concerns the caller alone: who he is, signing out

	Export   Act = "export"    // history as a file: CSV, JSON
	SaveView Act = "save-view" // keep, share and remove a view of the explorer
	Reveal   Act = "reveal"    // see a masked value
	Release  Act = "release"   // lift a block: it lets somebody through, for a while
	Promote  Act = "promote"   // let a rule block, or block a share
	Demote   Act = "demote"    // back to shadow
	Disable  Act = "disable"   // stop counting
	Enable   Act = "enable"    // count again
	Apply    Act = "apply"     // a new version of a rule or allow list
	SetLimit Act = "set-limit" // another limit
	Rollback Act = "rollback"  // an earlier version again
	Allow    Act = "allow"     // add or remove an entry of an allow list
	Reset    Act = "reset"     // forget what a rule has counted of a source
	Erase    Act = "erase"     // remove a subject from history
	Block    Act = "block"     // block a source by hand
	// NeverBlock is to keep addresses from being blocked, or to end that.
	NeverBlock Act = "never-block"
	// Resume is to accept that what is missing before a partition's gap will not be counted, so that it goes on.
	Resume Act = "resume"
)

// permission is what an act needs.
type permission struct {
	act   Act
	least Role
	// owned acts concern one rule or list: who is Owner may do them to his own, and an act on none of anybody's is the admin's.
	owned bool
	// witnessed acts change nothing that has an entry of the audit trail of its own: routers write one, see Mux.
	witnessed bool
}

var permissions = [...]permission{
	{act: Public, least: Nobody},
	{act: View, least: Viewer},
	{act: Self, least: Viewer},
	{act: Export, least: Analyst, witnessed: true},
	{act: SaveView, least: Analyst, witnessed: true},
	{act: Reveal, least: Analyst},
	{act: Release, least: Analyst},
	{act: Promote, least: Owner, owned: true},
	{act: Demote, least: Owner, owned: true},
	{act: Disable, least: Owner, owned: true},
	{act: Enable, least: Owner, owned: true},
	{act: Apply, least: Owner, owned: true},
	{act: SetLimit, least: Owner, owned: true},
	{act: Rollback, least: Owner, owned: true},
	{act: Allow, least: Owner, owned: true},
	{act: Reset, least: Owner, owned: true},
	{act: Erase, least: Admin},
	{act: Block, least: Admin},
	{act: NeverBlock, least: Admin},
	{act: Resume, least: Admin},
}

// Acts are all acts, those that need least first.
func Acts() []Act {
	out := make([]Act, len(permissions))
	for i, p := range permissions {
		out[i] = p.act
	}
	return out
}

// Least is the lowest role that may do act, to something of its own where owned says that the act concerns a rule or list. ok is
// false for an act that there is not.
func Least(act Act) (role Role, owned, ok bool) {
	i := slices.IndexFunc(permissions[:], func(p permission) bool { return p.act == act })
	if i < 0 {
		return Admin, false, false
	}
	return permissions[i].least, permissions[i].owned, true
}

// Witnessed reports whether routers write the entry of the audit trail about an act. Of the others that are in the
// trail whoever carries them out does.
func Witnessed(act Act) bool {
	return slices.ContainsFunc(permissions[:], func(p permission) bool { return p.act == act && p.witnessed })
}

// Forbidden is why somebody may not do something. Its text is made for the person who asked.
type Forbidden struct {
	Actor     Actor
	Act       Act
	Needs     Role   // the lowest role that may
	RuleOwner string // whose rule it is; empty where the act concerns none
	owned     bool
	unasked   bool // which rule it is of is not known yet
}

func (f *Forbidden) Error() string {
	needs := fmt.Sprintf("%s needs the role %s", f.Act, f.Needs)
	switch {
	case f.owned && f.unasked:
		needs += " of the rule's owner, or admin"
	case f.owned && f.RuleOwner != "":
		needs += fmt.Sprintf(" of %q, or admin", f.RuleOwner)
	case f.owned:
		needs = fmt.Sprintf("%s of what no owner is named for needs the role admin", f.Act)
	case f.Needs < Admin:
		needs += " or a higher one"
	}
	switch {
	case f.Actor.Role == Nobody:
		return needs + "; nobody is signed in"
	case f.owned && f.Actor.Role == Owner:
		return fmt.Sprintf("%s; %s is owner of %s", needs, f.Actor.Name, quoted(f.Actor.Owners))
	}
	return fmt.Sprintf("%s; %s is %s", needs, f.Actor.Name, f.Actor.Role)
}

func quoted(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	out := ""
	for i, name := range names {
		if i > 0 {
			out += ", "
		}
		out += fmt.Sprintf("%q", name)
	}
	return out
}

// May returns nil where actor may do act to a rule or allow list of ruleOwner, else a *Forbidden. ruleOwner is the `owner` of the
// document that is there and, where the act replaces it, May is asked for that of the new one as well. It is empty, and makes no
// difference, for acts that concern no rule; of the others, an empty one leaves the act to admins.
func May(actor Actor, act Act, ruleOwner string) error {
	least, owned, ok := Least(act)
	if !ok {
		return fmt.Errorf("%q is no act that anybody may do", act)
	}
	if actor.Role >= least && actor.Role <= Admin && (!owned || actor.Owns(ruleOwner)) {
		return nil
	}
	return &Forbidden{Actor: actor, Act: act, Needs: least, RuleOwner: ruleOwner, owned: owned}
}

// MayAny is May for some rule: whether actor could do act at all. Routers ask it before they look which rule it is, and pages to
// know what to offer. It permits nothing: May does, once the rule is known.
func MayAny(actor Actor, act Act) error {
	least, owned, ok := Least(act)
	if !ok {
		return fmt.Errorf("%q is no act that anybody may do", act)
	}
	if actor.Role >= least && actor.Role <= Admin {
		return nil
	}
	return &Forbidden{Actor: actor, Act: act, Needs: least, owned: owned, unasked: true}
}
