package evidence_test

import (
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/evidence"
)

// All figures are of one moment, whatever is recorded meanwhile and on however many connections they are read.
func TestFiguresAreOfOneMoment(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.minutes(t, plain(0, 60)...)
	for range evidence.TopSources { // all of them are shown
		b.hits(t, hit{from: 1, to: 5, events: 10, peak: 7, refused: 3})
	}
	conn, err := pgx.Connect(t.Context(), b.URL)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		defer func() { _ = conn.Close(t.Context()) }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := conn.Exec(t.Context(), "UPDATE weir.hits SET refused = refused + 1"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 30 {
		d := b.gather(t, evidence.Question{})
		for _, s := range d.Top {
			if s.Refused != d.Top[0].Refused {
				t.Fatalf("%s was refused %d, %s %d, and all were always refused as many", s.Subject, s.Refused, d.Top[0].Subject, d.Top[0].Refused)
			}
		}
	}
	close(stop)
	writer.Wait()
}

// Dossiers that are gathered at once do not wait for each other's connections, however few there are.
func TestManyDossiersAtOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.minutes(t, plain(0, 60)...)
	for range 50 {
		b.hits(t, hit{from: 1, to: 5, events: 10, peak: 7, refused: 3})
	}
	want := b.gather(t, evidence.Question{})
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			for range 3 {
				if d := b.gather(t, evidence.Question{}); d.Held.Sources != want.Held.Sources || len(d.Top) != len(want.Top) {
					t.Errorf("%+v, want %+v", d.Held, want.Held)
				}
			}
		})
	}
	all.Wait()
}
