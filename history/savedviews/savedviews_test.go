package savedviews_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/savedviews"
	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

func TestViewsAreOnesOwnOrShared(t *testing.T) {
	bed := historytest.New(t)
	s := savedviews.New(bed.DB)
	ctx := t.Context()
	for _, v := range []savedviews.View{
		{By: "ann", Name: "b", Query: "rule=a&source=ip%3D192.0.2.7"}, {By: "ann", Name: "a", Query: "", Shared: true}, {By: "bob", Name: "c", Query: "x=y", Shared: true},
		{By: "bob", Name: "secret", Query: "x=z"}, {By: "ann", Name: "b", Query: "rule=b"},
	} {
		if err := s.Save(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
	list := func(by, want string) {
		t.Helper()
		views, err := s.List(ctx, by)
		var got []string
		for _, v := range views {
			got = append(got, v.By+"/"+v.Name+"?"+v.Query)
			if v.At.IsZero() || v.Shared != (v.Name == "a" || v.Name == "c") {
				t.Errorf("%+v", v)
			}
		}
		if text := strings.Join(got, " "); err != nil || text != want {
			t.Errorf("%s has %s, %v; want %s", by, text, err, want)
		}
	}
	list("ann", "ann/a? ann/b?rule=b bob/c?x=y")
	list("bob", "bob/c?x=y bob/secret?x=z ann/a?")
	list("carl", "ann/a? bob/c?x=y")
	if err := s.Remove(ctx, "ann", "c"); !errors.Is(err, postgres.ErrNotFound) {
		t.Errorf("another's view: %v", err)
	}
	if err := s.Remove(ctx, "bob", "c"); err != nil {
		t.Error(err)
	}
	list("carl", "ann/a?")

	bed.Run(t, "INSERT INTO weir.saved_views SELECT 'dan', 'v' || n, '', false FROM generate_series(1, 200) n")
	if err := s.Save(ctx, savedviews.View{By: "dan", Name: "v7", Query: "x=1"}); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	if err := s.Save(ctx, savedviews.View{By: "dan", Name: "more"}); !errors.Is(err, savedviews.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
}

func TestWhatIsNoViewIsRefused(t *testing.T) {
	s := savedviews.New(nil)
	for want, v := range map[string]savedviews.View{
		"nobody": {Name: "a"}, "name: got \"\"": {By: "ann"}, "name: got \" a\"": {By: "ann", Name: " a"}, `name: got "a\nb"`: {By: "ann", Name: "a\nb"},
		`name: got "a\u202eb"`: {By: "ann", Name: "a\u202eb"}, "name: got \"aaa": {By: "ann", Name: strings.Repeat("a", 81)},
		"query: got 3 bytes": {By: "ann", Name: "a", Query: "a=%"}, "query: got 2001 bytes": {By: "ann", Name: "a", Query: strings.Repeat("a", 2001)}, "query: got 4 bytes": {By: "ann", Name: "a", Query: "a= b"},
	} {
		if err := s.Save(t.Context(), v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}
