package consume

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// olderStore is a sink's store of one partition, with positions, which can come back as it was.
type olderStore struct {
	mu     sync.Mutex
	rows   map[string]int // by value, how often it was stored
	at     map[int]int64
	away   bool
	writes int
	whole  bool // it has kept positions from its beginning
	life   int  // another one after each start
	asked  int  // the life of when it was asked last
}

var (
	_ ingest.Sink = (*olderStore)(nil)
	_ Positions   = (*olderStore)(nil)
)

func (s *olderStore) Apply(_ context.Context, batch []traffic.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range batch {
		s.rows[string(m.Value)]++
	}
	return nil
}

func (s *olderStore) Kept(context.Context) (map[int]int64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = s.life
	return maps.Clone(s.at), s.whole, nil
}

func (s *olderStore) Keep(_ context.Context, all []ingest.Kept) (map[int]int64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, false, errors.New("away")
	}
	others, anew := map[int]int64{}, s.asked != s.life
	s.asked = s.life
	for _, k := range all {
		at, ok := s.at[k.Partition]
		if !ok {
			at = -1
		}
		if at != k.Before {
			others[k.Partition] = at
		} else if at != k.Now && !anew {
			s.at[k.Partition] = k.Now
			s.writes++
		}
	}
	return others, anew, nil
}

// copy is what a dump of it has; put puts it back.
func (s *olderStore) copy() *olderStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &olderStore{rows: maps.Clone(s.rows), at: maps.Clone(s.at)}
}

func (s *olderStore) put(dump *olderStore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows, s.at = dump.rows, dump.at
	s.life++
}

// begins has it start anew with all that it has.
func (s *olderStore) begins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life++
}

func (s *olderStore) leave(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = away
}

// A store that comes back older than it was is given again what it has lost, whatever Kafka's commits say: while the
// stage runs, also where nothing new comes, and while it does not. What it has is not given again.
func TestAStoreThatComesBackOlderIsGivenWhatItLost(t *testing.T) {
	tests := []struct {
		name   string
		life   func(w *cutWorld, s *olderStore, run func(during func()))
		again  string // what begins so may be stored twice, since it comes before the loss is noticed
		olders float64
		losses int
	}{
		{name: "nothing is lost", life: func(w *cutWorld, _ *olderStore, run func(func())) {
			run(func() { w.log.write(values("a", 5)...); settle() })
			run(func() { w.log.write(values("b", 5)...); settle() })
		}},
		{name: "while it runs, and records come", olders: 1, again: "c",
			life: func(w *cutWorld, s *olderStore, run func(func())) {
				run(func() {
					w.log.write(values("a", 5)...)
					settle()
					dump := s.copy()
					w.log.write(values("b", 5)...)
					settle()
					s.put(dump)
					w.log.write(values("c", 5)...)
					settle()
				})
			}},
		{name: "while it runs, and nothing comes", olders: 1, life: func(w *cutWorld, s *olderStore, run func(func())) {
			run(func() {
				w.log.write(values("a", 5)...)
				settle()
				dump := s.copy()
				w.log.write(values("b", 5)...)
				settle()
				s.put(dump)
				settle()
			})
		}},
		{name: "while it does not run", olders: 1, life: func(w *cutWorld, s *olderStore, run func(func())) {
			run(func() { w.log.write(values("a", 5)...); settle() })
			dump := s.copy()
			run(func() { w.log.write(values("b", 5)...); settle() })
			s.put(dump)
			run(settle)
		}},
		{name: "of before the first record", olders: 1, life: func(w *cutWorld, s *olderStore, run func(func())) {
			run(func() {
				settle()
				dump := s.copy()
				w.log.write(values("a", 5)...)
				settle()
				s.put(dump)
				settle()
			})
		}},
		{name: "and the log has lost some of it", olders: 1, losses: 1, life: func(w *cutWorld, s *olderStore,
			run func(func())) {
			run(func() { w.log.write(values("gone", 5)...); settle() })
			dump := s.copy()
			delete(dump.rows, "gone3")
			delete(dump.rows, "gone4")
			dump.at[0] = 3
			s.put(dump)
			w.log.keep(4, 5)
			run(func() { w.log.write(values("a", 5)...); settle() })
			s.rows["gone3"]++ // nobody has it any more, and the loss says so
		}},
		{name: "while it runs, and the log has lost some of it", olders: 1, losses: 1,
			life: func(w *cutWorld, s *olderStore,
				run func(func())) {
				run(func() {
					w.log.write(values("gone", 5)...)
					settle()
					dump := s.copy()
					w.log.write(values("a", 5)...)
					settle()
					w.log.keep(7, 10)
					s.put(dump)
					settle()
				})
			}},
		{name: "it does not answer for a while", life: func(w *cutWorld, s *olderStore, run func(func())) {
			run(func() {
				s.leave(true)
				w.log.write(values("a", 5)...)
				settle()
				if w.log.commit != nil {
					w.t.Errorf("committed %+v before the store had kept it", w.log.commit)
				}
				s.leave(false)
				settle()
			})
		}},
		{name: "it fails over between rows and their position",
			life: func(w *cutWorld, s *olderStore, run func(func())) {
				run(func() {
					w.log.write(values("a", 5)...)
					settle()
					before := s.copy()
					s.leave(true)
					w.log.write(values("b", 5)...)
					settle()
					s.put(before) // it has lost rows whose position it was never told
					s.leave(false)
					settle()
					w.log.write(values("c", 5)...)
					settle()
				})
			}},
		{name: "it starts anew with all that it had", again: "b",
			life: func(w *cutWorld, s *olderStore, run func(func())) {
				run(func() {
					w.log.write(values("a", 5)...)
					settle()
					s.leave(true)
					w.log.write(values("b", 5)...)
					settle()
					s.begins()
					s.leave(false)
					settle()
				})
			}},
		{name: "of before the first start", olders: 1,
			life: func(w *cutWorld, s *olderStore, run func(func())) {
				s.whole = true
				dump := s.copy()
				run(func() { w.log.write(values("a", 5)...); settle() })
				s.put(dump)
				run(settle)
			}},
		{name: "a build of before has committed", life: func(w *cutWorld, s *olderStore, run func(func())) {
			run(func() { w.log.write(values("a", 5)...); settle() })
			clear(s.at)
			run(func() { w.log.write(values("b", 5)...); settle() })
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &olderStore{rows: map[string]int{}, at: map[int]int64{}}
				w := &cutWorld{t: t, log: &cutLog{}, registry: prometheus.NewRegistry(), positions: s, store: s}
				test.life(w, s, w.run)
				for _, m := range w.log.held {
					v := string(m.Value)
					again := test.again != "" && strings.HasPrefix(v, test.again)
					if got := s.rows[v]; got != 1 && (got != 2 || !again) {
						t.Errorf("%s is stored %d times", v, got)
					}
				}
				if w.log.commit == nil || w.log.commit.Offset != w.log.end() || s.at[0] != w.log.end() {
					t.Errorf("committed %+v, kept %v of %d records", w.log.commit, s.at, w.log.end())
				}
				if len(w.told) != test.losses {
					t.Errorf("losses told: %+v, want %d", w.told, test.losses)
				}
				if n := counted(t, w.registry, "weir_stage_store_older_total"); n != test.olders {
					t.Errorf("the store was found older %v times, want %v", n, test.olders)
				}
			})
		})
	}
}

// counted is the sum of a counter's series.
func counted(t *testing.T, registry *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
