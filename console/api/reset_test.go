package api_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/traffic"
)

// maskedBelowAdmin shows pseudonyms to everybody but admins.
func maskedBelowAdmin(t *testing.T) *access.Masker {
	t.Helper()
	masker, err := access.NewMasker(access.Masking{Key: bytes.Repeat([]byte{7}, access.MaskKeyBytes),
		Below: access.Admin, Fields: access.DefaultMaskedFields()})
	if err != nil {
		t.Fatal(err)
	}
	return masker
}

// TestResetTellsNoValue: an owner who is shown pseudonyms names a source by them, and is answered with them; else an
// act would reveal what only a reveal may, which is audited.
func TestResetTellsNoValue(t *testing.T) {
	masker := maskedBelowAdmin(t)
	b := newBed(t, masker)
	b.Apply(t, historytest.Document("tokens"))
	otto := cast()["otto"]
	for plain, status := range map[traffic.Subject]int{"ip=203.0.113.7%2F32&device=tv-7": 200, "ip=203.0.113.7%2F32": 409} {
		shown := masker.Subject(otto, plain)
		got := b.ask(t, "otto", "POST", "/api/v1/rules/tokens/reset", acts.ResetRequest{Subject: shown, Reason: "a load test"})
		if got.status != status || strings.Contains(string(got.body), "203.0.113.7") || strings.Contains(string(got.body), "tv-7") {
			t.Errorf("%s: %d %s", plain, got.status, got.body)
		}
		if !strings.Contains(string(got.body), strings.Split(string(shown), "&")[0]) {
			t.Errorf("the answer does not name %s: %s", shown, got.body)
		}
	}
	if got := b.ask(t, "otto", "POST", "/api/v1/rules/tokens/reset", acts.ResetRequest{Subject: "ip=203.0.113.7%2F32&device=tv-7", Reason: "a guess"}); got.status != 400 {
		t.Errorf("a plain value is taken: %d %s", got.status, got.body)
	}
}
