package erasure

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// episodes deletes the person's episodes, with their samples.
func (w *work) episodes(ctx context.Context) error {
	condition, args := w.person.condition("block_subject")
	var running int64
	err := w.tx.QueryRow(ctx, `SELECT count(*) FROM hits_all WHERE phase < 3 AND last >= now() - interval '2 days' AND `+condition, args...).Scan(&running)
	if err != nil {
		return err
	}
	if running > 0 {
		w.left("episodes that run", running, "they are erased, and RECORD stores each again with its next record; erase again when they have ended")
	}
	// Of how far they were nobody is named, and nobody asks without them.
	for _, view := range []string{"hits_all", "hits_beside_all"} {
		if _, err := w.tx.Exec(ctx, "DELETE FROM hit_points WHERE id IN (SELECT id FROM "+view+" WHERE "+condition+")",
			args...); err != nil {
			return err
		}
	}
	if err := w.refused(ctx); err != nil {
		return err
	}
	for _, t := range []struct{ what, tables string }{
		{"episodes", "hits_by_day hits"}, {"episodes near a limit or over one on trial", "hits_beside_by_day hits_beside"},
	} {
		n := int64(0)
		for table := range strings.FieldsSeq(t.tables) {
			tag, err := w.tx.Exec(ctx, "DELETE FROM "+table+" WHERE "+condition, args...)
			if err != nil {
				return err
			}
			n += tag.RowsAffected()
		}
		w.erased(t.what, n)
	}
	return nil
}

// refused deletes what gates refused by blocks of the person. A block is named by the first digits of its hit: whose it
// is, the hit says, or a decision about it.
func (w *work) refused(ctx context.Context) error {
	n := int64(0)
	for _, of := range []struct{ hit, view, subject string }{
		{"id", "hits_all", "block_subject"}, {"hit", "block_decisions_all", "subject"},
	} {
		condition, args := w.person.condition(of.subject)
		tag, err := w.tx.Exec(ctx, "DELETE FROM refusals WHERE (rule, block) IN (SELECT rule, left("+of.hit+
			", 16) FROM "+
			of.view+" WHERE "+condition+")", args...)
		if err != nil {
			return err
		}
		n += tag.RowsAffected()
	}
	w.erased("sums of refused requests", n)
	return nil
}

// samples takes the person's requests out of the evidence about others: of an address that somebody shares with him, say.
func (w *work) samples(ctx context.Context) error {
	condition, arg := w.mentions()
	n := int64(0)
	for _, table := range []string{"hits_by_day", "hits", "hits_beside_by_day", "hits_beside"} {
		rows, err := w.tx.Query(ctx, "SELECT id, samples FROM "+table+" WHERE samples <> '{}' AND "+condition, arg)
		if err != nil {
			return err
		}
		type row struct {
			ID      string
			Samples []string
		}
		found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil {
			return err
		}
		for _, r := range found {
			kept := slices.DeleteFunc(slices.Clone(r.Samples), w.person.in)
			if len(kept) == len(r.Samples) {
				continue
			}
			n += int64(len(r.Samples) - len(kept))
			if _, err := w.tx.Exec(ctx, "UPDATE "+table+" SET samples = $2 WHERE id = $1", r.ID, kept); err != nil {
				return err
			}
		}
	}
	w.erased("samples in episodes of other sources", n)
	return nil
}

// mentions is a condition that holds for rows whose samples may be of the person, with its argument $1.
func (w *work) mentions() (condition string, arg any) {
	p := &w.person
	switch {
	case p.Field == traffic.FieldIP && !p.Prefix.IsSingleIP():
		return "EXISTS (SELECT FROM unnest(samples) s WHERE parse_address((read_sample(s)).ip) <<= $1::inet)", p.Prefix.String()
	case p.Field == traffic.FieldIP:
		return "position($1 IN array_to_string(samples, ' ')) > 0", p.Prefix.Addr().String()
	}
	var written []string
	for _, value := range p.values() {
		text, _ := json.Marshal(traffic.Printable(value)) // a string always encodes
		written = append(written, strings.Trim(string(text), `"`))
	}
	return "EXISTS (SELECT FROM unnest($1::text[]) v WHERE position(v IN array_to_string(samples, ' ')) > 0)", written
}

// in reports whether a sample is of a request of the person.
func (p *Person) in(sample string) bool {
	var s traffic.Sample
	if json.Unmarshal([]byte(sample), &s) != nil {
		return strings.Contains(sample, p.Value) // what it says is not known
	}
	own := ""
	switch p.Field {
	case traffic.FieldIP:
		a, err := netip.ParseAddr(s.IP)
		return err == nil && p.Prefix.Contains(a.Unmap())
	case traffic.FieldDevice:
		own = s.Device
	case traffic.FieldUser:
		own = s.User
	case traffic.FieldSession:
		own = s.Session
	}
	// Of an API key a sample has the end alone.
	return own != "" && slices.ContainsFunc(p.values(),
		func(value string) bool { return own == traffic.Printable(value) })
}

// decisions deletes what was decided about the person's blocks, but for what is in force: Redis is rebuilt from it.
func (w *work) decisions(ctx context.Context) error {
	condition, args := w.person.condition("subject")
	rows, err := w.tx.Query(ctx, `SELECT rule, subject, max(until) FROM block_decisions_all
		WHERE stream = 'live' AND until > now() AND action IN ('written', 'extended') AND `+condition+`
			AND NOT EXISTS (SELECT FROM block_decisions r WHERE r.action = 'released' AND r.until > now() AND r.stream = block_decisions_all.stream
				AND r.rule = block_decisions_all.rule AND r.subject = block_decisions_all.subject
				AND (block_decisions_all.since <= r.since OR block_decisions_all.hit = r.hit))
		GROUP BY rule, subject ORDER BY rule, subject`, args...)
	if err != nil {
		return err
	}
	w.done.Blocks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (b Block, err error) {
		return b, row.Scan(&b.Rule, &b.Subject, postgres.ScanTime(&b.Until))
	})
	if err != nil {
		return err
	}
	var n, kept int64
	for _, table := range []string{"block_decisions_by_day", "block_decisions"} {
		tag, err := w.tx.Exec(ctx, "DELETE FROM "+table+" WHERE coalesce(until < now(), true) AND "+condition, args...)
		if err != nil {
			return err
		}
		n += tag.RowsAffected()
	}
	if err := w.tx.QueryRow(ctx, "SELECT count(*) FROM block_decisions_all WHERE "+condition, args...).Scan(&kept); err != nil {
		return err
	}
	w.erased("block decisions", n)
	tag, err := w.tx.Exec(ctx, "DELETE FROM block_orders WHERE until < now() AND "+condition, args...)
	if err != nil {
		return err
	}
	w.erased("blocks by hand", tag.RowsAffected())
	if w.person.Field != traffic.FieldIP {
		return nil
	}
	if tag, err = w.tx.Exec(ctx, "DELETE FROM never_block_entries WHERE coalesce(removed_at, until) < now() AND prefix <<= $1::cidr", w.person.Prefix); err != nil {
		return err
	}
	w.erased("entries of the never-block list", tag.RowsAffected())
	if kept > 0 {
		w.left("block decisions", kept, "they are in force until their blocks and releases end, and Redis is rebuilt from them; erase again after that")
	}
	return nil
}

// wider counts what tells of prefixes that hold the address: of others, too.
func (w *work) wider(ctx context.Context) error {
	if w.person.Field != traffic.FieldIP {
		return nil
	}
	var n int64
	err := w.tx.QueryRow(ctx, "SELECT (SELECT count(*) FROM hits_all WHERE ip >> $1::cidr) + (SELECT count(*) FROM block_decisions_all WHERE ip >> $1::cidr)",
		w.person.Prefix).Scan(&n)
	if n > 0 {
		w.left("episodes and decisions of prefixes that hold the address", n, "they tell of their other addresses, too; erase the prefix where it is one person's")
	}
	return err
}

// others says what no erasure reaches.
func (w *work) others(ctx context.Context) error {
	var dossiers int64
	err := w.tx.QueryRow(ctx, "SELECT count(*) FROM dossiers WHERE position($1 IN document) > 0", w.person.text()).Scan(&dossiers)
	if err != nil {
		return err
	}
	if dossiers > 0 {
		w.left("dossiers of promotions", dossiers, "they are the evidence on which rules were promoted, kept unchanged under their hashes")
	}
	w.left("sums of rules and minutes", 0, "nobody is named in them")
	w.left("records in Kafka", 0, "they go with the retention of their topics (kafka.retention)")
	w.left("windows of DETECT and blocks in Redis", 0, "they go when they end; a block that is released leaves a mark until it would have ended")
	w.left("rules, allow lists and resets of counts", 0, "people wrote them: weir rules and weir allow change them")
	if w.person.Field == traffic.FieldAPIKey {
		w.left("the ends of API keys in samples of other sources", 0, "four characters do not say whose they are")
	}
	return nil
}
