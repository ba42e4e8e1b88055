package access

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// matrix is the table of docs/access.md, written once more by hand: which of nobody, viewer, analyst, owner of another rule, owner
// of the rule, admin may do what.
func matrix() map[Act]string {
	return map[Act]string{
		Public: "yyyyyy", View: "-yyyyy", Self: "-yyyyy",
		Export: "--yyyy", SaveView: "--yyyy", Reveal: "--yyyy", Release: "--yyyy",
		Promote: "----yy", Demote: "----yy", Disable: "----yy", Enable: "----yy", Apply: "----yy", SetLimit: "----yy", Rollback: "----yy",
		Allow: "----yy", Reset: "----yy",
		Erase: "-----y", Block: "-----y", NeverBlock: "-----y", Resume: "-----y",
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	actors := []Actor{
		{}, {Name: "vi", Role: Viewer, Owners: []string{"identity"}}, {Name: "an", Role: Analyst, Owners: []string{"identity"}},
		{Name: "other", Role: Owner, Owners: []string{"search"}}, {Name: "own", Role: Owner, Owners: []string{"search", "identity"}},
		{Name: "ad", Role: Admin},
	}
	acts := matrix()
	if len(acts) != len(Acts()) {
		t.Errorf("the table has %d acts, the package %d", len(acts), len(Acts()))
	}
	for act, row := range acts {
		for i, actor := range actors {
			err := May(actor, act, "identity")
			if allowed := err == nil; allowed != (row[i] == 'y') {
				t.Errorf("%s, %s: got %v", act, actor, err)
			}
			var forbidden *Forbidden
			if err != nil && !errors.As(err, &forbidden) {
				t.Errorf("%s, %s: got %T", act, actor, err)
			}
			if any := MayAny(actor, act); err == nil && any != nil {
				t.Errorf("%s, %s: may do it to a rule, and not to any: %v", act, actor, any)
			}
		}
	}
}

func TestNobodyOwnsWhatHasNoOwner(t *testing.T) {
	owner := Actor{Name: "o", Role: Owner, Owners: []string{"", "identity"}}
	if err := May(owner, Promote, ""); err == nil || !strings.Contains(err.Error(), "needs the role admin") {
		t.Errorf("a rule without owner: got %v", err)
	}
	if err := May(Actor{Name: "a", Role: Admin}, Promote, ""); err != nil {
		t.Errorf("an admin: %v", err)
	}
	for _, actor := range []Actor{{Role: 5}, {Role: 255}} {
		if May(actor, View, "") == nil || MayAny(actor, View) == nil {
			t.Errorf("%v is no role, and may view", actor.Role)
		}
	}
	if May(Actor{Role: Admin}, "no-such-act", "") == nil || MayAny(Actor{Role: Admin}, "") == nil {
		t.Error("an act that there is not is permitted")
	}
}

func TestForbiddenSaysWhoMay(t *testing.T) {
	for _, tc := range []struct {
		actor Actor
		act   Act
		owner string
		want  string
	}{
		{Actor{}, View, "", "view needs the role viewer or a higher one; nobody is signed in"},
		{Actor{Name: "vi", Role: Viewer}, Release, "identity", "release needs the role analyst or a higher one; vi is viewer"},
		{Actor{Name: "vi", Role: Viewer}, Promote, "identity", `promote needs the role owner of "identity", or admin; vi is viewer`},
		{Actor{Name: "o", Role: Owner, Owners: []string{"a", "b"}}, Demote, "identity", `demote needs the role owner of "identity", or admin; o is owner of "a", "b"`},
		{Actor{Name: "o", Role: Owner}, Demote, "", `demote of what no owner is named for needs the role admin; o is owner of nothing`},
		{Actor{Name: "o", Role: Owner}, Erase, "", "erase needs the role admin; o is owner"},
	} {
		if err := May(tc.actor, tc.act, tc.owner); err == nil || err.Error() != tc.want {
			t.Errorf("got  %v\nwant %s", err, tc.want)
		}
	}
}

func TestRolesAsText(t *testing.T) {
	for _, name := range RoleNames() {
		var r Role
		if err := r.UnmarshalText([]byte(name)); err != nil || r.String() != name {
			t.Errorf("%s comes back as %s, %v", name, r, err)
		}
	}
	for _, name := range []string{"", "nobody", "Admin", "root"} {
		r := Viewer
		if err := r.UnmarshalText([]byte(name)); err == nil || r != Viewer {
			t.Errorf("%q is read as %s", name, r)
		}
	}
	if !slices.IsSortedFunc(Acts(), func(a, b Act) int {
		x, _, _ := Least(a)
		y, _, _ := Least(b)
		return int(x) - int(y)
	}) {
		t.Error("acts do not ascend by what they need")
	}
}
