package service

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// All that weir registers says whose it is and whether it is of a replay; what every Go program has does not.
func TestOwnMetricsCarryNamespaceAndStream(t *testing.T) {
	for stream, r := range map[string]*Registry{"live": NewRegistry("v1", "eu-west"), "replay": NewReplayRegistry("v1", "eu-west")} {
		checkOwnLabels(t, r, "eu-west "+stream)
	}
}

func checkOwnLabels(t *testing.T, r *Registry, labels string) {
	t.Helper()
	own := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_test_total", Help: "A test."}, []string{"rule"})
	if err := r.Register(own); err != nil {
		t.Fatal(err)
	}
	own.WithLabelValues("a").Inc()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var of []string
			for _, l := range m.GetLabel() {
				if l.GetName() == "namespace" || l.GetName() == "stream" {
					of = append(of, l.GetValue())
				}
			}
			want := ""
			if strings.HasPrefix(f.GetName(), "weir_") {
				want = labels
				seen++
			}
			if got := strings.Join(of, " "); got != want {
				t.Errorf("%s is of %q, want %q", f.GetName(), got, want)
			}
		}
	}
	if seen != 2 || len(families) < 10 {
		t.Errorf("%d series of weir among %d metrics, want 2 among many", seen, len(families))
	}
	if !r.Unregister(own) {
		t.Error("what was registered cannot be taken away")
	}
}
