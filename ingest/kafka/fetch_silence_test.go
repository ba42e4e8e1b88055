package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/ingest"
)

func TestSilence(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	asked := func(partitions ...int) []ingest.Position {
		var out []ingest.Position
		for _, p := range partitions {
			out = append(out, ingest.Position{Partition: p})
		}
		return out
	}
	answers := func(partitions ...int) []ingest.Fetched {
		var out []ingest.Fetched
		for _, p := range partitions {
			out = append(out, ingest.Fetched{Partition: p})
		}
		return out
	}
	type step struct {
		at             int
		asked          []int
		answered       []int
		silent, report []int
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"one is silent while the other answers", []step{
			{at: 0, asked: []int{0, 1}, answered: []int{0}},
			{at: 29, asked: []int{0, 1}, answered: []int{0}},
			{at: 30, asked: []int{0, 1}, answered: []int{0}, silent: []int{1}, report: []int{1}},
			{at: 40, asked: []int{0, 1}, answered: []int{0}, silent: []int{1}},
			{at: 61, asked: []int{0, 1}, answered: []int{0}, silent: []int{1}, report: []int{1}},
			{at: 62, asked: []int{0, 1}, answered: []int{0, 1}},
			{at: 80, asked: []int{0, 1}, answered: []int{0}},
		}},
		{"all are silent: that is an outage, and told as one", []step{
			{at: 0, asked: []int{0, 1}}, {at: 20, asked: []int{0, 1}}, {at: 40, asked: []int{0, 1}}, {at: 60, asked: []int{0, 1}},
		}},
		{"given to another owner", []step{
			{at: 0, asked: []int{0, 1}, answered: []int{0}},
			{at: 20, asked: []int{0}, answered: []int{0}},
			{at: 60, asked: []int{0}, answered: []int{0}},
			{at: 70, asked: []int{0, 1}, answered: []int{0}}, // and back: the clock starts anew
			{at: 99, asked: []int{0, 1}, answered: []int{0}},
			{at: 101, asked: []int{0, 1}, answered: []int{0}, silent: []int{1}, report: []int{1}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSilence(30 * time.Second)
			for _, step := range tc.steps {
				silent, report := s.observe(at(step.at), asked(step.asked...), answers(step.answered...))
				if !slices.Equal(silent, step.silent) || !slices.Equal(report, step.report) {
					t.Errorf("at %d: silent %v report %v, want %v %v", step.at, silent, report, step.silent, step.report)
				}
			}
		})
	}
}
