package story_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/story"
)

const anyField = `story: Keys of any field
teaches: A source is named by more than its address.
rules:
  - id: scraping
    owner: docs
    match: {path: "/users/{id}"}
    key: ["{id}", "api_key|ip", attrs.tenant]
    count: {distinct: [host, method]}
    limit: 1
    window: 10m
  - id: volume
    owner: docs
    match: {}
    key: [ip]
    count: {sum: bytes}
    limit: 100
    window: 10m
each: {ip: 192.0.2.1, method: GET, path: /users/7, host: a.example, attrs: {tenant: acme}}
timeline:
  - {at: 0s}
  - {at: 1s, api_key: k}
  - {at: 2s, method: POST}
  - {at: 3s, host: b.example, path: /users/8}
  - {at: 4s, host: b.example, attrs: {}}
  - {at: 5s, bytes: 101}
expect:
  hits:
    - {rule: scraping, ip: 192.0.2.1, "{id}": "7", attrs.tenant: acme, count: 2, peak: 2, first: 2s, last: 5s}
    - {rule: volume, ip: 192.0.2.1, count: 1, peak: 101}
`

func TestStoryOfAnyKey(t *testing.T) {
	none := func(string) ([]byte, error) { return nil, nil }
	s, err := story.Parse("a.yaml", []byte(anyField), none)
	if err != nil {
		t.Fatal(err)
	}
	got, err := story.Fold(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := s.Diff(got); diff != "" {
		t.Error(diff)
	}
	for from, to := range map[string]string{`"{id}": "7"`: `"{id}": "8"`, "attrs.tenant: acme, count": "attrs.tenant: other, count"} {
		if s, err = story.Parse("a.yaml", []byte(strings.Replace(anyField, from, to, 1)), none); err != nil {
			t.Fatal(err)
		}
		if s.Diff(got) == "" {
			t.Errorf("%s is as good as %s", to, from)
		}
	}
	if _, err = story.Parse("a.yaml", []byte(strings.Replace(anyField, "rule: volume, ip", "rule: volume, attrs.tenant: acme, ip", 1)), none); err == nil || !strings.Contains(err.Error(), "not of the key") {
		t.Errorf("a field of another rule's key: %v", err)
	}
}
