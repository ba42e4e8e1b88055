package main

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/asking"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/traffic"
)

func TestParseSince(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]traffic.Time{
		"": 0, "24h": traffic.At(at.Add(-24 * time.Hour)), "7d": traffic.At(at.Add(-7 * config.Day)), "2026-01-01T00:00:00Z": traffic.At(at.Add(-30*config.Day - 12*time.Hour)),
	} {
		if got, err := asking.Time("since", text, at); err != nil || got != want {
			t.Errorf("%q: got %s, %v; want %s", text, got, err, want)
		}
	}
	if _, err := asking.Time("since", "2026-01-31T12:00:01Z", at); err == nil || !strings.Contains(err.Error(), "lies ahead of now, 2026-01-31T12:00:00Z") {
		t.Errorf("of the future: %v", err)
	}
}
