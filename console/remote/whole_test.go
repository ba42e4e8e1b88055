package remote

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
)

// What is no answer of a type is refused with the place where it is none; what another build leaves out, or has beside,
// is read.
func TestWhole(t *testing.T) {
	for _, tt := range []struct {
		of   any
		text string
		says string // empty: it is one
	}{
		{&acts.ApplyDone{}, `{}`, "it has none of the members"},
		{&acts.ApplyDone{}, `null`, "it is no object"},
		{&acts.ApplyDone{}, `{"plan": null}`, "it has none of the members"},
		{&acts.ApplyDone{}, `{"changes": []}`, ""},
		{&acts.ApplyDone{}, `{"changes": [{}]}`, "changes[0] has none of the members"},
		{&acts.ApplyDone{}, `{"changes": null, "published": true}`, ""},
		{&api.Page[acts.Partition]{}, `{"items": []}`, ""},
		{&api.Page[acts.Partition]{}, `{"items": null}`, ""},
		{&api.Page[acts.Partition]{}, `{"items": [null]}`, "items[0] is no object"},
		{&api.Page[acts.Partition]{}, `{"items": [{"side": "keyed"}, {"colour": 1}]}`,
			"items[1] has none of the members"},
		{&api.Page[acts.Partition]{}, `{"items": [{"side": "keyed", "colour": 1}], "total": 1}`, ""},
		{&api.Page[acts.Partition]{}, `{"next": "x"}`, ""},
		{&acts.ReleaseDone{}, `{"blocked": null}`, ""},
		{&acts.EraseRequest{}, `{"-": ""}`, "it has none of the members"},
		{&struct{ Part json.RawMessage }{}, `{"Part": null}`, ""},
		{&struct{}{}, `{}`, ""},
	} {
		err := whole([]byte(tt.text), reflect.TypeOf(tt.of))
		if (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%T of %s: %v, want %q", tt.of, tt.text, err, tt.says)
		}
	}
}
