package blocklist

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/weirhq/weir/blocklist/signing"
	"github.com/weirhq/weir/rules"
)

func signer(t *testing.T, key byte) *signing.Signer {
	t.Helper()
	s, err := signing.NewSigner(bytes.Repeat([]byte{key}, signing.SeedBytes), "weir")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// change gives v another value than it has; false where this test knows no other one.
func change(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	default:
		return false
	}
	return true
}

// Each field of a mode, and of what its blocks hold, is in what is signed: with any of them changed the signature is
// wrong. A field that is added and not signed fails here.
func TestEachFieldOfAModeIsSigned(t *testing.T) {
	s := signer(t, 1)
	mode := func() rules.ModeState {
		return rules.ModeState{Rule: someRule, Mode: rules.ModeCanary, Generation: 3, Promoted: 1, Newest: 2,
			Share: 500, Match: rules.Held{Methods: []string{"POST"}, Path: "/v1/tokens"}}
	}
	original := mode()
	signed := s.Sign(encode(&original))
	sum := signed[strings.LastIndex(signed, `,"sig":`):]
	try := func(name string, state *rules.ModeState) {
		t.Helper()
		text := encode(state)
		forged := strings.TrimSuffix(text, "}") + sum
		if err := s.Check(someRule, forged); !errors.Is(err, signing.ErrForged) {
			t.Errorf("with another %s: %v\n%s", name, err, forged)
		}
	}
	fields := reflect.TypeFor[rules.ModeState]()
	for i := range fields.NumField() {
		if fields.Field(i).Name == "Match" {
			continue
		}
		state := mode()
		if !change(reflect.ValueOf(&state).Elem().Field(i)) {
			t.Errorf("this test can give %s no other value", fields.Field(i).Name)
		}
		try(fields.Field(i).Name, &state)
	}
	held := reflect.TypeFor[rules.Held]()
	for i := range held.NumField() {
		state := mode()
		if !change(reflect.ValueOf(&state.Match).Elem().Field(i)) {
			t.Errorf("this test can give %s no other value", held.Field(i).Name)
		}
		try("match: "+held.Field(i).Name, &state)
	}
	if err := s.Check(someRule, signed); err != nil {
		t.Errorf("itself: %v", err)
	}
}

// What is not signed by the present key is published anew; what is, is left, though another build wrote it.
func TestAModeThatIsNotSignedIsBehind(t *testing.T) {
	ours, theirs := signer(t, 1), signer(t, 2)
	mode := rules.ModeState{Rule: someRule, Mode: rules.ModeBlock, Generation: 3, Newest: 1,
		Match: rules.Held{Path: "/a"}}
	text := encode(&mode)
	newer := strings.TrimSuffix(text, "}") + `,"added":true}`
	for _, tt := range []struct {
		what, published string
		signer          *signing.Signer
		behind          bool
	}{
		{"unsigned, and nobody signs", text, nil, false},
		{"signed, and an older build does not sign", ours.Sign(text), nil, false},
		{"signed", ours.Sign(text), ours, false},
		{"signed, with a member of a newer build", ours.Sign(newer), ours, false},
		{"unsigned", text, ours, true},
		{"signed with the key before", theirs.Sign(text), ours, true},
		{"changed", strings.Replace(ours.Sign(text), `"/a"`, `"/b"`, 1), ours, true},
	} {
		if got, err := modeIsBehind(tt.published, &mode, tt.signer); err != nil || got != tt.behind {
			t.Errorf("%s: behind is %v, %v", tt.what, got, err)
		}
	}
}

// A version that the rule store of this process has not heard of yet is not replaced by an older one.
func TestAModeOfANewerVersionIsNotBehind(t *testing.T) {
	ahead := rules.ModeState{Rule: someRule, Mode: rules.ModeShadow, Generation: 3, Newest: 7, Match: rules.Held{Path: "/v1/guest-tokens"}}
	stale := rules.ModeState{Rule: someRule, Mode: rules.ModeBlock, Generation: 3, Newest: 1, Match: rules.Held{Path: "/v0"}}
	if isBehind, err := modeIsBehind(encode(&ahead), &stale, nil); err != nil || isBehind {
		t.Errorf("a version that the publisher has not seen yet counts as behind: %v", err)
	}
}

// olderMode is an entry of the modes as a build reads and writes it that knows of no canary.
type olderMode struct {
	Rule       string     `json:"rule"`
	Mode       string     `json:"mode"`
	Generation int64      `json:"generation"`
	Match      rules.Held `json:"match"`
	Promoted   int        `json:"promoted,omitempty"`
	Newest     int        `json:"newest,omitempty"`
}

// Two builds publish side by side: what one writes of a canary the other one leaves, or makes whole, and neither goes on for ever. A gate of
// the older build refuses nobody for a canary, whoever wrote the entry.
func TestACanaryBesideAnOlderBuild(t *testing.T) {
	ours := rules.ModeState{Rule: someRule, Mode: rules.ModeCanary, Generation: 3, Newest: 1, Promoted: 1, Share: 1000, Match: rules.Held{Path: "/a"}}
	var theirs olderMode
	if err := json.Unmarshal([]byte(encode(&ours)), &theirs); err != nil {
		t.Fatal(err)
	}
	if theirs.Mode == "block" || theirs.Mode == "shadow" || theirs.Generation != 3 {
		t.Errorf("a gate of the older build reads %+v", theirs)
	}
	// They read the same columns of the rule store, and write what they know.
	theirText := encode(&theirs)
	if isBehind, err := modeIsBehind(theirText, &ours, nil); err != nil || !isBehind {
		t.Errorf("the share that the older build left out is not put back: %v", err)
	}
	if again := encode(&theirs); again != theirText {
		t.Errorf("the older build would write %s over ours", again)
	}
	// Within a generation a canary goes on and never back, whoever is late.
	next, end := ours, ours
	next.Share, end.Mode, end.Share = 5000, rules.ModeBlock, 0
	for _, tt := range []struct {
		what         string
		known, given *rules.ModeState
		behind       bool
	}{
		{"a step", &ours, &next, true}, {"a late step", &next, &ours, false},
		{"the end", &next, &end, true}, {"a step after the end", &end, &next, false}, {"the same", &next, &next, false},
	} {
		if got, err := modeIsBehind(encode(tt.known), tt.given, nil); err != nil || got != tt.behind {
			t.Errorf("%s: behind is %v, %v", tt.what, got, err)
		}
	}
	block := Block{Generation: 3}
	for m, holds := range map[*rules.ModeState]bool{&ours: true, &end: true, {Mode: rules.ModeCanary, Generation: 4}: false, {Mode: rules.ModeShadow, Generation: 3}: false} {
		if got := block.InForce(m); got != holds {
			t.Errorf("under mode %s, generation %d: %v", m.Mode, m.Generation, got)
		}
	}
}
