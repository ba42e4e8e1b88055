// Package access is who may do what: the person or script behind a request, the four roles, what each of them may do, and which
// values a role is shown as pseudonyms. It is pure: sign-in is console/signin's, and what is done is console/acts'.
//
//	viewer < analyst < owner (of the rules of an owner) < admin
//
// Each role may do what the ones before it may. An owner changes the rules whose `owner` is one of his own and nobody else's;
// an admin changes all of them.
package access

import (
	"fmt"
	"slices"
	"strings"
)

// Role is how much somebody may do. The zero value may do nothing.
type Role uint8

// The roles, each above the one before it.
const (
	Nobody  Role = iota // not signed in, or without a role
	Viewer              // sees
	Analyst             // asks: exports, reveals masked values, lifts a block
	Owner               // decides about the rules of his owners
	Admin               // decides about all rules and about the installation
)

var roleNames = [...]string{"nobody", "viewer", "analyst", "owner", "admin"}

// String is the role's name in configuration and messages.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role(%d)", uint8(r))
}

// MarshalText writes the role's name.
func (r Role) MarshalText() ([]byte, error) {
	if int(r) >= len(roleNames) {
		return nil, fmt.Errorf("no role has number %d", uint8(r))
	}
	return []byte(roleNames[r]), nil
}

// UnmarshalText reads the name of a role that somebody can have.
func (r *Role) UnmarshalText(b []byte) error {
	at := slices.Index(roleNames[:], string(b))
	if at <= int(Nobody) {
		return fmt.Errorf("got %q; allowed: %s", b, strings.Join(RoleNames(), ", "))
	}
	*r = Role(at)
	return nil
}

// RoleNames are the names of the roles that somebody can have, the one that may least first.
func RoleNames() []string { return slices.Clone(roleNames[Viewer:]) }

// How somebody came.
const (
	ViaOIDC   = "oidc"   // signed in with the identity provider
	ViaToken  = "token"  // a static token of the configuration, in a header or in the sign-in's form
	ViaInvite = "invite" // signed in by the link of an invitation
	// ViaLocal is whoever is at this machine: of weir dev, of console.local_admin, and of commands with credentials of
	// their own.
	ViaLocal = "local"
)

// Actor is who asks for something. The zero value is nobody and may do nothing.
type Actor struct {
	// Name is what the audit trail keeps: what the configured claim says, token:NAME for a script, the user of the machine.
	Name string `json:"name" mask:"name"`
	Role Role   `json:"role"`
	// Owners are the owners of rules for whom an Owner decides, as the documents name them (`owner: identity`).
	Owners []string `json:"owners,omitempty" mask:"name"`
	// Via is how the actor came: one of the Via constants.
	Via string `json:"via" mask:"-"`
}

// String is the actor as messages and logs name it.
func (a Actor) String() string {
	if a.Role == Nobody {
		return "nobody"
	}
	return fmt.Sprintf("%s (%s)", a.Name, a.Role)
}

// Owns reports whether a decides about the rules of ruleOwner.
func (a Actor) Owns(ruleOwner string) bool {
	return a.Role >= Admin || a.Role == Owner && ruleOwner != "" && slices.Contains(a.Owners, ruleOwner)
}
