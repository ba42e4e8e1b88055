package acts_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
)

// What is no person is refused before anything is asked, with the name that is near.
func TestErasePerson(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"usr=alice":        "did you mean user?",
		"alice":            "each with =VALUE",
		"user=":            "a value behind user=",
		"ip=192.0.2":       "an address",
		"ip=192.0.0.0/16":  "/24 or longer",
		"ip=2001:db8::/32": "IPv6 /48 or longer",
	} {
		_, err := new(acts.Service).Erase(t.Context(), access.Actor{Name: "root", Role: access.Admin}, acts.EraseRequest{Subject: subject, Reason: "asked for it"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", subject, err, want)
		}
	}
	for role := access.Viewer; role < access.Admin; role++ {
		_, err := new(acts.Service).Erase(t.Context(), access.Actor{Name: "ann", Role: role}, acts.EraseRequest{Subject: "user=alice", Reason: "asked for it"})
		if err == nil || !strings.Contains(err.Error(), "erase needs the role admin") {
			t.Errorf("%v: %v", role, err)
		}
	}
}
