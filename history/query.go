package history

import (
	"context"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic"
)

// where is the condition of a query of this package.
type where struct{ postgres.Where }

// selectRows adds the conditions that all queries share. Empty and nil values select everything.
func (w *where) selectRows(stream, rule string, source *Source) {
	if stream != "" {
		w.Add("stream = ?", stream)
	}
	if rule != "" {
		w.Add("rule = ?", traffic.Printable(rule))
	}
	if source != nil {
		source.Condition(&w.Where)
	}
}

// Times beyond these bound no days: dates are not made for them.
const (
	earliestDay = traffic.Time(-62_135_596_800_000_000) // the year 1
	latestDay   = traffic.Time(253_402_300_800_000_000) // the year 10000
)

// notBefore leaves out the days before that of t less some: PostgreSQL does not look into their tables.
func (w *where) notBefore(t traffic.Time, less retention.Day) {
	if t > earliestDay && t < latestDay {
		w.Add("day >= ?::date", (retention.DayOf(t) - less).Date())
	}
}

// notAfter leaves out the days after that of t and some more.
func (w *where) notAfter(t traffic.Time, more retention.Day) {
	if t > earliestDay && t < latestDay {
		w.Add("day <= ?::date", (retention.DayOf(t) + more).Date())
	}
}

// after selects what comes after a place, in descending order of a column and id.
func (w *where) after(column string, place *Place) {
	if place == nil {
		return
	}
	w.Add(column+" <= ?", postgres.Timestamp(place.At)) // for the index; the pair alone would be no condition on it
	w.Add("("+column+", id) < (?, ?)", postgres.Timestamp(place.At), place.ID)
}

// behind selects what comes after a place, in descending order of minute and ascending order of key, an expression.
func (w *where) behind(key string, place *Place) {
	if place == nil {
		return
	}
	w.Add("minute <= ?", postgres.Timestamp(place.At)) // for the index; the alternatives alone would be no condition on it
	w.Add("(minute < ? OR "+key+" > ?)", postgres.Timestamp(place.At), place.ID)
}

// CountCap is where counting stops: a query may select more rows than anybody waits for.
const CountCap = 100_001

func (s *Store) count(ctx context.Context, table string, w *where, most int64) (n int64, err error) {
	err = s.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM "+table+w.String()+" LIMIT "+w.Arg(most)+") found", w.Args...).Scan(&n)
	if err != nil {
		return 0, s.Fail("counting rows of "+table, err)
	}
	return n, nil
}
