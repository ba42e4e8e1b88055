package story_test

import (
	"path/filepath"
	"testing"

	"github.com/weirhq/weir/internal/story"
)

const stories = "../../examples/stories"

func read(t *testing.T, file string) *story.Story {
	t.Helper()
	s, err := story.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// files are the stories that users find.
func files(t testing.TB) []string {
	t.Helper()
	found, err := filepath.Glob(stories + "/*.yaml")
	if err != nil || len(found) < 12 {
		t.Fatalf("%d stories in %s, %v", len(found), stories, err)
	}
	return found
}

// Each story's hits come of its events, whatever is killed meanwhile.
func TestStories(t *testing.T) {
	for _, file := range files(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			s := read(t, file)
			got, err := story.Fold(s)
			if err != nil {
				t.Fatal(err)
			}
			if diff := s.Diff(got); diff != "" {
				t.Errorf("%s\n%s:\n%s", s.Name, file, diff)
			}
		})
	}
}
