package api

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/traffic"
)

// words are the types of strings that are words of weir's: what people and clients write has none of them.
func words() []string {
	return strings.Fields(`access.Act blocklist.Action detectors.Kind detectors.Phase evidence.GapReason
		evidence.Role evidence.Side evidence.State ingest.Side ingest.State promotion.Outcome rules.Algorithm
		rules.AllowKind rules.Extend rules.Mode rules.OnMissing rules.PathAs rules.PathCase rulestore.ChangeKind
		rulestore.Outcome traffic.Subject`)
}

// kinds are what a tag may say, and whether it names a member beside it.
func tagKinds() map[string]bool {
	return map[string]bool{"-": false, "name": false, "text": true, "line": false, "detail": false, "object": false,
		"value": true, "sample": false,
		"hash": false, "cursor": false, "lines": false}
}

type noCounts struct{}

func (noCounts) Count(context.Context, string, traffic.Subject) (Count, error) { return Count{}, nil }

// TestEachStringOfAnAnswerSaysWhatItIs: a new member of an answer is masked as access.Show says only where its tag says
// how.
func TestEachStringOfAnAnswerSaysWhatItIs(t *testing.T) {
	a := &API{o: Options{Reader: &Reader{Letters: (*letters.Reader)(nil), Counts: noCounts{}}}}
	seen := map[reflect.Type]bool{}
	types := []reflect.Type{reflect.TypeFor[Problem](), reflect.TypeFor[Revealed]()}
	for _, r := range a.table() {
		if r.answer != nil {
			types = append(types, reflect.TypeOf(r.answer))
		}
	}
	for _, of := range types {
		tagged(t, of, seen)
	}
	if len(seen) < 80 {
		t.Errorf("%d types were looked at", len(seen))
	}
}

func tagged(t *testing.T, of reflect.Type, seen map[reflect.Type]bool) {
	if seen[of] {
		return
	}
	seen[of] = true
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		tagged(t, of.Elem(), seen)
	case reflect.Map:
		t.Errorf("%s: its keys and values have no tag: make it a list", of)
	case reflect.String:
		if of != reflect.TypeFor[string]() && !slices.Contains(words(), of.String()) {
			t.Errorf("%s is a string that nobody masks: is it a word of weir's?", of)
		}
	case reflect.Struct:
		for i := range of.NumField() {
			f := of.Field(i)
			if !f.IsExported() && !f.Anonymous || f.Type == reflect.TypeFor[error]() {
				continue
			}
			if !f.IsExported() && f.Type.Kind() == reflect.Pointer {
				t.Errorf("%s embeds a pointer to %s, which nothing can mask: embed the struct, or export it", of,
					f.Name)
			}
			checkTag(t, of, &f)
			tagged(t, f.Type, seen)
		}
	}
}

func checkTag(t *testing.T, of reflect.Type, f *reflect.StructField) {
	plain := f.Type
	for plain.Kind() == reflect.Pointer || plain.Kind() == reflect.Slice &&
		plain != reflect.TypeFor[json.RawMessage]() {
		plain = plain.Elem()
	}
	kind, beside, _ := strings.Cut(f.Tag.Get("mask"), ",")
	names, known := tagKinds()[kind]
	switch {
	case plain != reflect.TypeFor[string]():
		if kind != "" {
			t.Errorf("%s.%s has a tag, and is no string", of, f.Name)
		}
	case !known:
		t.Errorf("%s.%s has no tag that access.Show knows: %q", of, f.Name, kind)
	case names && beside != "":
		if other, ok := of.FieldByName(beside); !ok {
			t.Errorf("%s.%s: there is no %s beside it", of, f.Name, beside)
		} else if _, keyed := reflect.Zero(other.Type).Interface().(interface {
			Field() (traffic.Field,
				bool)
		}); !keyed && other.Type.Kind() != reflect.String {
			t.Errorf("%s.%s: %s is no string", of, f.Name, beside)
		}
	}
}
