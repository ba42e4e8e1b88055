package rulestore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/rules"
)

// stands says for the audit trail what a rule is, in parts that stay or change each for itself: mode, version with the revision of its
// document, generation, and what is pending.
func (r *Rule) stands() string {
	mode := string(r.Mode)
	switch {
	case r.Removed:
		mode = "removed"
	case r.Mode == rules.ModeCanary && r.Canary != nil:
		mode += " of " + r.Canary.Share.String()
	}
	text := mode + audit.Part + r.Newest.revision() + audit.Part + fmt.Sprintf("generation %d", r.Generation)
	if r.Pending != nil {
		text += audit.Part + r.Pending.revision() + " pending"
	}
	return text
}

// revision names a version by its number and the beginning of its document's hash.
func (v *StoredVersion) revision() string {
	return fmt.Sprintf("version %d (document %s)", v.Version.Number, shortHash(v.Hash))
}

// shortHash is enough of a hash to tell documents of one rule apart.
func shortHash(hash string) string {
	const digits = 12
	return hash[:min(digits, len(hash))]
}

// change says what a step finds and leaves behind, before it is carried out.
func (st *step) change() (before, after string, err error) {
	next := Rule{Generation: 1}
	before = audit.None
	if st.was != nil {
		before, next = st.was.stands(), *st.was
	}
	next.Mode, next.Pending = st.Mode, nil
	switch {
	case st.edited:
		document, err := json.Marshal(st.next.Document)
		if err != nil {
			return "", "", err
		}
		hash := sha256.Sum256(document)
		made := StoredVersion{Version: st.next, Hash: hex.EncodeToString(hash[:])}
		if st.next.Pending {
			next.Pending = &made
		} else {
			next.Newest = made
		}
	case st.adopts != nil:
		next.Newest = *st.adopts.Pending
	}
	switch st.Kind {
	case ChangeRemoved:
		next.Removed = true
		next.Generation++
	case ChangeRestored:
		next.Removed = false
		next.Generation++
	}
	return before, next.stands(), nil
}

// stands says for the audit trail what an allow list is. Whom it names stays out of it, and so does a hash of the
// document: of a short list the addresses could be found by trying.
func (a *AllowList) stands() string {
	switch {
	case a == nil:
		return audit.None
	case a.Removed:
		return fmt.Sprintf("removed%sversion %d", audit.Part, a.Version)
	}
	return fmt.Sprintf("version %d%sentries: %d", a.Version, audit.Part, len(a.List.Entries))
}

// limited says for the audit trail which limit a rule has at now, raised or not.
func (r *Rule) limited(now time.Time) string {
	if u := r.Raised; u.In(now) {
		return fmt.Sprintf("limit %d until %s", u.Limit, u.Until.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("limit %d", r.Newest.Version.Limit)
}

// allowOf is the stored list of an id, nil for none.
func allowOf(lists []AllowList, id string) *AllowList {
	if i := slices.IndexFunc(lists, func(a AllowList) bool { return a.List.ID == id }); i >= 0 {
		return &lists[i]
	}
	return nil
}
