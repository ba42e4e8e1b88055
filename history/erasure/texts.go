package erasure

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/traffic"
)

// Texts name a person in two ways. What weir itself writes, the objects of the audit trail and what was before and
// after, has sources in forms of its own (user=zoe, user zoe, an address): these alone are replaced there, since a
// person may be called rule, block, or as a rule is. What people write, reasons, has words: each that is the value is
// replaced, unless it is one of weir's own or a name of the installation, which then has to stand behind the name of
// its field.

// Text is a text that names the person, as it was and as it is.
type Text struct {
	Where string `json:"where" mask:"-"`
	Was   string `json:"was" mask:"text"`
	Is    string `json:"is" mask:"text"`
}

const (
	// mostTexts bounds the texts that are told of: TextsMore says how many more there are.
	mostTexts = 200
	// leastText is how long a value is that is looked for as a word: a shorter one stands in any text.
	leastText = 3
)

// ownWords are what weir calls things, and what stands in its texts beside names.
const ownWords = `above accept access act acts actor add added admin after again agent alert all allow allowed
	analyst and any api api_key apply at audit backlog before block blocked blocks budget burst by candidate canary
	change changed console count counted counter day decision demote detail device devices disable doctor document
	dossier enable end enforce entry episode erase event events evidence expired extend false field first for from
	gap gate gates generation group hit hits hold host hour https http id in invite ip is key kind lag last late
	left level limit list lists live load local log longer match max method minute mode near never-block new next no
	none not object observe off on once open operator order override owner page partition partitions path pending
	people percent period person predicted promote proxy query raise reason record redis refused release released
	remove removed request requests reset resume reveal review role rollback route rule rules sample same seen
	session sessions set-limit shadow share sign-in sign-out signed since source sources step steps stream subject
	system test tests the then time to token topic traffic true trust undo unknown until upload user users value
	version versions view viewer was weir when who why window windows with without word write written`

// names is how texts name the person.
type names struct {
	person    *Person
	pseudonym string
	also      []string       // pseudonyms by which the console shows him
	fields    *regexp.Regexp // the value behind the name of its field; nil for an address
	words     bool           // the value is looked for as a word in reasons
	distinct  bool           // and in weir's own texts, where no word of these can be meant
}

// named finds out how texts name the person. taken are the names that rules, lists, owners and people of the
// installation have.
func named(p *Person, pseudonym string, also []string, taken func(string) (bool, error)) (names, error) {
	n := names{person: p, pseudonym: pseudonym, also: also}
	if p.Field == traffic.FieldIP {
		return n, nil
	}
	n.fields = regexp.MustCompile(`(?i)(^|[^A-Za-z0-9_=&%-])(` + p.Field.String() + `(?:=|:? ["'“` + "`" + `]?))` +
		regexp.QuoteMeta(p.text()))
	own, err := taken(p.Value)
	if err != nil {
		return n, err
	}
	own = own || slices.Contains(strings.Fields(ownWords), strings.ToLower(p.Value))
	n.words = !own && len(p.text()) >= leastText
	n.distinct = n.words && strings.ContainsFunc(p.Value, func(r rune) bool { return r != '-' && !unicode.IsLower(r) })
	return n, nil
}

// own is a text of weir's with the pseudonym in place of the person.
func (n *names) own(text string) string {
	text = n.structured(text)
	if n.distinct {
		text = replaceWords(text, n.person.text(), n.pseudonym)
	}
	return text
}

// written is a text of somebody's with the pseudonym in place of the person.
func (n *names) written(text string) string {
	text = n.structured(text)
	if n.words {
		text = replaceWords(text, n.person.text(), n.pseudonym)
	}
	return text
}

// structured replaces what can only mean the person: parts of subjects, the value behind the name of its field,
// addresses, and the pseudonyms that the console shows.
func (n *names) structured(text string) string {
	for _, part := range n.person.parts() {
		field, value, _ := strings.Cut(part, "=")
		text = replaceParts(text, field+"=", value, n.pseudonym)
	}
	for _, shown := range n.also {
		text = replaceWords(text, shown, n.pseudonym)
	}
	if n.person.Field == traffic.FieldIP {
		return n.addresses(text)
	}
	var out strings.Builder
	for {
		at := n.fields.FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		next, _ := utf8.DecodeRuneInString(text[at[1]:])
		if at[1] < len(text) && (inWord(next) || next == '&' && text[at[5]-1] == '=') || followed(text[at[1]:]) {
			out.WriteString(text[:at[4]+1]) // into the name of the field, so that it is not found again
			text = text[at[4]+1:]
			continue
		}
		out.WriteString(text[:at[5]] + n.pseudonym)
		text = text[at[1]:]
	}
	return out.String() + text
}

// replaceParts replaces a whole part FIELD=VALUE of subjects that stand in a text.
func replaceParts(text, field, value, with string) string {
	var out strings.Builder
	for {
		i := strings.Index(text, field+value)
		if i < 0 {
			return out.String() + text
		}
		end := i + len(field) + len(value)
		before, _ := utf8.DecodeLastRuneInString(out.String() + text[:i])
		rest := text[end:]
		if before != utf8.RuneError && (inWord(before) || before == '%' || before == '.') ||
			rest != "" && rest[0] == '%' || startsInWord(rest) || followed(rest) {
			out.WriteString(text[:i+1])
			text = text[i+1:]
			continue
		}
		out.WriteString(text[:i] + field + with)
		text = rest
	}
}

var address = regexp.MustCompile(`[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]*(?:/[0-9]{1,3})?`)

// addresses replaces each address and prefix that is within the person's.
func (n *names) addresses(text string) string {
	within := func(run string) bool {
		p, err := netip.ParsePrefix(run)
		if err != nil {
			a, err := netip.ParseAddr(run)
			if err != nil {
				return false
			}
			a = a.Unmap()
			p = netip.PrefixFrom(a, a.BitLen())
		}
		return n.person.Prefix.Bits() <= p.Bits() && n.person.Prefix.Contains(p.Addr())
	}
	return address.ReplaceAllStringFunc(text, func(run string) string {
		bare := strings.TrimRight(run, ".:") // the end of a sentence
		host, _, ported := strings.Cut(bare, ":")
		switch {
		case within(bare):
			return n.pseudonym + run[len(bare):]
		case ported && strings.Contains(host, ".") && within(host):
			return n.pseudonym + run[len(host):]
		}
		return run
	})
}

// replaceWords replaces each word, whatever its case, that is a value.
func replaceWords(text, value, with string) string {
	var out strings.Builder
	before := rune(0)
	for text != "" {
		if n := len(value); n <= len(text) && strings.EqualFold(text[:n], value) && !inWord(before) && before != '.' &&
			!startsInWord(text[n:]) && !followed(text[n:]) {
			out.WriteString(with)
			text, before = text[n:], 0
			continue
		}
		r, size := utf8.DecodeRuneInString(text)
		out.WriteString(text[:size])
		text, before = text[size:], r
	}
	return out.String()
}

// inWord reports whether a character beside a value makes it a part of a longer one.
func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-~@", r)
}

func startsInWord(rest string) bool {
	r, _ := utf8.DecodeRuneInString(rest)
	return rest != "" && inWord(r)
}

// followed reports whether a value goes on behind a dot, as an address or a name of a host does, or is the beginning of
// the pseudonym of an erasure.
func followed(rest string) bool {
	return strings.HasPrefix(rest, ".") && startsInWord(rest[1:]) || strings.HasPrefix(rest, erasedMark)
}

// texts replaces the person in texts that stay: the audit trail, and every reason.
func (w *work) texts(ctx context.Context, also []string) error {
	n, err := named(&w.person, w.done.Pseudonym, also, func(name string) (is bool, err error) {
		return is, w.tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM rule_versions
				WHERE lower(rule) = lower($1) OR strpos(lower(document), $2) > 0)
			OR EXISTS (SELECT FROM allow_versions WHERE lower(list) = lower($1) OR strpos(lower(document), $2) > 0)
			OR EXISTS (SELECT FROM audit WHERE lower(actor) = lower($1))`,
			traffic.Printable(name), `"owner":"`+strings.ToLower(traffic.Printable(name))+`"`).Scan(&is)
	})
	if err != nil {
		return err
	}
	if !n.words && w.person.Field != traffic.FieldIP {
		w.left("the word alone in reasons", 0,
			"it is a word of weir's, a name of the installation or shorter than 3 bytes: "+
				"it is replaced where its field stands before it")
	}
	if err := w.trail(ctx, &n); err != nil {
		return err
	}
	return w.reasons(ctx, &n)
}

// trail puts the pseudonym where the audit trail names the person. The entries stay.
func (w *work) trail(ctx context.Context, n *names) error {
	rows, err := w.tx.Query(ctx, "SELECT seq, object, detail, before, after, reason FROM audit ORDER BY seq")
	if err != nil {
		return err
	}
	type entry struct {
		Seq                                   int64
		Object, Detail, Before, After, Reason string
	}
	var changed []entry
	e := entry{}
	_, err = pgx.ForEachRow(rows, []any{&e.Seq, &e.Object, &e.Detail, &e.Before, &e.After, &e.Reason}, func() error {
		is := entry{e.Seq, n.own(e.Object), n.own(e.Detail), n.own(e.Before), n.own(e.After), n.written(e.Reason)}
		if is == e {
			return nil
		}
		changed = append(changed, is)
		for _, t := range []struct{ what, was, is string }{
			{"object", e.Object, is.Object}, {"detail", e.Detail, is.Detail}, {"before", e.Before, is.Before},
			{"after", e.After, is.After},
			{"reason", e.Reason, is.Reason},
		} {
			w.told(fmt.Sprintf("entry %d of the audit trail, %s", e.Seq, t.what), t.was, t.is)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, is := range changed {
		if _, err := w.tx.Exec(ctx, "UPDATE audit SET object = $2, detail = $3, before = $4, after = $5, reason = $6 "+
			"WHERE seq = $1",
			is.Seq, is.Object, is.Detail, is.Before, is.After, is.Reason); err != nil {
			return err
		}
	}
	w.erased("entries of the audit trail, in which a pseudonym stands now", int64(len(changed)))
	return nil
}

// reasons puts the pseudonym into every other reason that the installation keeps, whatever table has it.
func (w *work) reasons(ctx context.Context, n *names) error {
	rows, err := w.tx.Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			AND a.attname = 'reason' AND NOT a.attisdropped AND c.relname <> 'audit' ORDER BY c.relname`)
	if err != nil {
		return err
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	touched := int64(0)
	for _, table := range tables {
		name := pgx.Identifier{table}.Sanitize()
		rows, err := w.tx.Query(ctx, "SELECT DISTINCT reason FROM "+name+" WHERE reason <> ''")
		if err != nil {
			return err
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, was := range all {
			is := n.written(was)
			if is == was {
				continue
			}
			tag, err := w.tx.Exec(ctx, "UPDATE "+name+" SET reason = $2 WHERE reason = $1", was, is)
			if err != nil {
				return err
			}
			touched += tag.RowsAffected()
			w.told(fmt.Sprintf("reason in %s, %d times", table, tag.RowsAffected()), was, is)
		}
	}
	w.erased("reasons of rules, lists and acts, in which a pseudonym stands now", touched)
	return nil
}

func (w *work) told(where, was, is string) {
	switch {
	case was == is:
	case len(w.done.Texts) < mostTexts:
		w.done.Texts = append(w.done.Texts, Text{where, was, is})
	default:
		w.done.TextsMore++
	}
}

// views deletes what people keep of the explorer about the person: questions about him, by his value or by a pseudonym.
func (w *work) views(ctx context.Context, also []string) error {
	rows, err := w.tx.Query(ctx, "SELECT made_by, name, query FROM saved_views")
	if err != nil {
		return err
	}
	type view struct{ By, Name, Query string }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[view])
	if err != nil {
		return err
	}
	gone := int64(0)
	for _, v := range all {
		q, err := url.ParseQuery(v.Query)
		if err == nil && !slices.ContainsFunc(q["source"], func(source string) bool {
			return w.person.asked(source,
				also)
		}) {
			continue
		}
		if err != nil && !strings.Contains(v.Query, w.person.text()) {
			continue
		}
		if _, err := w.tx.Exec(ctx, "DELETE FROM saved_views WHERE made_by = $1 AND name = $2", v.By,
			v.Name); err != nil {
			return err
		}
		gone++
	}
	w.erased("saved views", gone)
	return nil
}

// asked reports whether a filter's source is the person: a value, FIELD=VALUE, a subject with the value in it, or a
// pseudonym.
func (p *Person) asked(source string, also []string) bool {
	bare := strings.TrimPrefix(source, p.Field.String()+"=")
	if bare == p.text() || slices.Contains(p.values(), bare) || slices.Contains(also, bare) {
		return true
	}
	if p.Field == traffic.FieldIP {
		if q, err := netip.ParsePrefix(bare); err == nil {
			return p.Prefix.Bits() <= q.Bits() && p.Prefix.Contains(q.Addr())
		}
		if a, err := netip.ParseAddr(bare); err == nil {
			return p.Prefix.Contains(a.Unmap())
		}
	}
	return slices.ContainsFunc(strings.Split(source, "&"), func(part string) bool {
		_, value, _ := strings.Cut(part, "=")
		return slices.Contains(p.parts(), part) || slices.Contains(also, value) && strings.HasPrefix(part,
			p.Field.String()+"=")
	})
}

// text is the value as people write it.
func (p *Person) text() string {
	if p.Field == traffic.FieldIP && p.Prefix.IsSingleIP() {
		return p.Prefix.Addr().String()
	}
	if p.Field == traffic.FieldIP {
		return p.Prefix.String()
	}
	return traffic.Printable(p.Value)
}
