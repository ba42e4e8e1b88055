package asking

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/traffic"
)

// ShownHit is an episode as --output json shows it: what history has, with the source's values, and evidence as events.
type ShownHit struct {
	history.RecordedHit
	Events   int64             `json:"events"` // the hit's count, by the name that tables and views have for it
	IP       string            `json:"ip,omitempty"`
	Device   string            `json:"device,omitempty"`
	User     string            `json:"user,omitempty"`
	APIKey   string            `json:"api_key,omitempty"`
	Session  string            `json:"session,omitempty"`
	Evidence []json.RawMessage `json:"evidence"`          // traffic.Sample; one that is no JSON is a text
	Samples  *struct{}         `json:"samples,omitempty"` // the texts are in Evidence
}

func shownHit(h history.RecordedHit) ShownHit {
	s := ShownHit{RecordedHit: h, Events: h.Count, Evidence: []json.RawMessage{}}
	values, err := h.Subject.Values()
	if err == nil {
		for _, v := range values {
			field, known := traffic.ParseField(v.Field)
			to := map[traffic.Field]*string{
				traffic.FieldIP: &s.IP, traffic.FieldDevice: &s.Device, traffic.FieldUser: &s.User, traffic.FieldAPIKey: &s.APIKey, traffic.FieldSession: &s.Session,
			}[field]
			if known && to != nil && !v.Missing {
				*to = traffic.Printable(v.Value)
			}
		}
	}
	for _, text := range h.Samples {
		raw := json.RawMessage(text)
		if !json.Valid(raw) {
			raw, _ = json.Marshal(text) // a string always encodes
		}
		s.Evidence = append(s.Evidence, raw)
	}
	return s
}

func shownHits(hits []history.RecordedHit) []ShownHit {
	shown := make([]ShownHit, len(hits))
	for i := range hits {
		shown[i] = shownHit(hits[i])
	}
	return shown
}

func (p *Program) hits() *cobra.Command {
	var f filterFlags
	var merged bool
	c := &cobra.Command{
		Use:   "hits",
		Short: "List hits: who was over which rule's limit, when and how far",
		Long: `List episodes of sources over a rule's limit, the newest first. An event is over when more than the rule's limit lie in its
window; an episode goes from the first over event to the last one, and EVENTS counts all between them, both included.
The table shows sources as they are known to the rule; --output json has the evidence, too. --since and --until leave the episodes that were
over at some time between.

Listed are those over the limit. --kind near lists who came near it (a rule's near), --kind candidate who was over a limit on trial (its
candidate's, or that of a pending version); nothing comes of either.`,
		Example: `  weir history hits --since 24h --rule guest-token-flood
  weir history hits --since 2026-11-20 --until 2026-11-21 --output csv
  weir history hits --kind candidate --rule guest-token-flood
  weir history hits --source 192.0.2.1 --output json
  weir history hits --replay monday`,
		Args: cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return p.ask(cmd, &f.lookFlags, func(ctx context.Context, from Answers, l looked) error {
				which := f.filter(&l)
				which.Merged = merged
				var left explore.LeftOut
				found, total, err := pages(f.limit, func(page explore.Page) ([]history.RecordedHit, explore.Total, string, error) {
					part, err := from.Hits(ctx, which, page)
					left = part.LeftOut
					return part.Hits, part.Total, part.Next, err
				})
				if err != nil {
					return err
				}
				if err := p.listHits(found); err != nil {
					return err
				}
				p.cut("newest", len(found), f.limit, total)
				p.leftOut(&which, left)
				return nil
			})
		}),
	}
	f.register(c)
	c.Flags().BoolVar(&merged, "merged", false, "also episodes that a late event joined to another one")
	return c
}

func (p *Program) listHits(hits []history.RecordedHit) error {
	shown := shownHits(hits)
	if p.Format == "csv" {
		return terminal.CSV(p.Output, shown, strings.Fields(`stream id kind rule rule_version phase subject ip device user api_key session block_subject
			grouped limit window events at_least peak first last users devices would_refuse known_good reason evidence`), csvHit)
	}
	return terminal.List(p.Output, shown, []string{"RULE", "SOURCE", "EVENTS", "PEAK", "LIMIT", "WINDOW", "FIRST", "LAST", "PHASE", "ID"}, hitRow)
}

// csvHit writes what a spreadsheet reckons with; evidence is one text a hit, event by event.
func csvHit(h ShownHit) []string {
	var events []string
	for _, sample := range h.RecordedHit.Samples {
		events = append(events, eventLine(sample))
	}
	if without := traffic.WithoutBefore(h.RecordedHit.Samples); without != "" {
		events = append(events, without)
	}
	return []string{
		h.Stream, h.ID, string(h.Kind), h.Rule, strconv.Itoa(h.RuleVersion), string(h.Phase), string(h.Subject), h.IP, h.Device, h.User, h.APIKey, h.Session,
		string(h.BlockSubject), strconv.FormatBool(h.Grouped), strconv.Itoa(h.Limit), length(h.WindowMS), strconv.FormatInt(h.Count, 10),
		strconv.FormatBool(h.AtLeast), strconv.Itoa(h.Peak), h.First.String(), h.Last.String(), strconv.Itoa(h.Users), strconv.Itoa(h.Devices),
		strconv.FormatInt(h.Refused, 10), strconv.Itoa(int(h.Good)), h.Reason, strings.Join(events, " | "),
	}
}

func hitRow(h ShownHit) []string {
	phase := string(h.Phase)
	if h.Grouped {
		phase += ", grouped"
	}
	if h.Reason != "" {
		phase += ", " + terminal.Brief(h.Reason) // why it was closed
	}
	events := strconv.FormatInt(h.Count, 10)
	if h.AtLeast {
		events = "≥" + events // some came late, and met what is not kept any more
	}
	return []string{
		h.Rule, subject.Text(h.Subject), events, strconv.Itoa(h.Peak), strconv.Itoa(h.Limit),
		length(h.WindowMS), terminal.Time(h.First), terminal.Time(h.Last), phase, h.ID,
	}
}

// beforeLimit begins the line of an event from before the limit.
const beforeLimit = "before the limit: "

// eventLine writes a sample as the event that it is: when, what, and by whom. What is no sample is shown as it is.
func eventLine(text string) string {
	var s traffic.Sample
	if err := json.Unmarshal([]byte(text), &s); err != nil || s.Time == 0 {
		return terminal.Brief(text)
	}
	words := []string{s.Time.Std().Format("2006-01-02T15:04:05.000Z"), s.Method, s.Host + s.Path}
	if s.Status != 0 {
		words = append(words, strconv.Itoa(s.Status))
	}
	for _, w := range []struct{ name, value string }{
		{"ip=", s.IP}, {"device=", s.Device}, {"user=", s.User}, {"api_key=…", s.APIKey}, {"session=", s.Session}, {"plan=", s.Plan}, {"agent: ", s.UserAgent}, {"attrs: ", s.Attrs},
	} {
		if w.value != "" {
			words = append(words, w.name+terminal.Brief(w.value))
		}
	}
	line := terminal.Safe(strings.Join(strings.Fields(strings.Join(words, " ")), " "))
	if s.Before {
		line = beforeLimit + line
	}
	return line
}
