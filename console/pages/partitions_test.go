package pages

import (
	"net/url"
	"strings"
	"testing"

	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
)

// letting12 is the form that lets partition keyed/12 go on.
func letting12(source, offset, reason, confirm string) url.Values {
	return url.Values{"gap_source": {source}, "gap_offset": {offset}, "reason": {reason}, "confirm": {confirm}}
}

// A partition goes on by the gap that the form showed, with a reason and a tick. Where another gap stands there by now,
// or none, nothing is done, and the page shows what is so now.
func TestPartitionsGoOn(t *testing.T) {
	const form = "/partitions/keyed/12/resume"
	now, _ := (&doer{}).Partitions(t.Context(), access.Actor{})
	for _, tt := range []struct {
		name, address string
		form          url.Values
		refuses       error
		status        int
		goes, says    string
		done          int
	}{
		{"the gap that was shown", form, letting12("5", "4711", "a disk \u202e", "yes"), nil, 303,
			"/partitions?did=resume",
			"", 1},
		{"once more", form, letting12("5", "4711", "again", "yes"), nil, 303, "/partitions?did=resume-again", "", 1},
		{"no tick", form, letting12("5", "4711", "a disk", ""), nil, 422, "", "tick the box", 0},
		{"no reason", form, letting12("5", "4711", "", "yes"), acts.CheckReason(""), 422, "", "words that say why", 1},
		{"a gap of words", form, letting12("5", "all", "a disk", "yes"), nil, 400, "", "the gap that the form had", 0},
		{"no gap", form, letting12("", "", "a disk", "yes"), nil, 400, "", "the gap that the form had", 0},
		{"an offset beyond all bounds", form, letting12("5", "9223372036854775808", "a disk", "yes"), nil, 400, "",
			"the gap that the form had", 0},
		{"the gap of a second tab", form, letting12("5", "4000", "a disk", "yes"),
			&acts.GapChangedError{Seen: "offset 4000 of source partition 5", Now: now[3]}, 409, "",
			"now stands at the gap before offset 4711 of source partition 5", 1},
		{"it went on meanwhile", form, letting12("5", "4711", "a disk", "yes"),
			&acts.NotStoppedError{Partition: now[2]},
			409, "", "keyed/0 is running: there is nothing to accept", 1},
		{"not by him", form, letting12("5", "4711", "a disk", "yes"), &access.Forbidden{Act: access.Resume}, 403, "",
			"You may not", 1},
		{"one that runs", "/partitions/keyed/0/resume", letting12("5", "4711", "a disk", "yes"), nil, 409, "",
			"keyed/0 is running", 0},
		{"one that only waits", "/partitions/requests/1/resume", letting12("5", "4711", "a disk", "yes"), nil, 409, "",
			"it has no leader for 41s", 0},
		{"an unknown one", "/partitions/keyed/13/resume", letting12("5", "4711", "a disk", "yes"), nil, 404, "",
			"No stage has reported partition keyed/13", 0},
		{"an unknown side", "/partitions/hits/12/resume", letting12("5", "4711", "a disk", "yes"), nil, 400, "",
			"requests, keyed", 0},
		{"a negative one", "/partitions/keyed/-1/resume", letting12("5", "4711", "a disk", "yes"), nil, 400, "",
			"0 to 2147483647", 0},
		{"one of 33 bits", "/partitions/keyed/2147483648/resume", letting12("5", "4711", "a disk", "yes"), nil, 400, "",
			"0 to 2147483647", 0},
		{"one of words", "/partitions/keyed/%E2%80%AE/resume", letting12("5", "4711", "a disk", "yes"), nil, 400, "",
			"the number of a partition", 0},
	} {
		s := newScene()
		s.does.refuses = tt.refuses
		status, body, h := post(t, newPages(t, s.options()), admin(), tt.address, tt.form)
		if status != tt.status || h.Get("Location") != tt.goes || !strings.Contains(body, tt.says) ||
			len(s.does.did) != tt.done {
			t.Errorf("%s: status %d, want %d; goes to %q, want %q; did %+v; want %q in %s", tt.name, status, tt.status,
				h.Get("Location"), tt.goes, s.does.did, tt.says, body)
		}
		if strings.Contains(body, "\u202e</") {
			t.Errorf("%s: a character that reorders the line is shown as it is", tt.name)
		}
		if len(s.does.did) == 0 || tt.refuses != nil {
			continue
		}
		r, ok := s.does.did[0].(acts.ResumeRequest)
		if !ok || r.Side != "keyed" || r.Partition != 12 || *r.GapSource != 5 || *r.GapOffset != 4711 {
			t.Errorf("%s: it did %+v", tt.name, s.does.did[0])
		}
	}
	// The form shows the gap of now after it was refused for another one, and what was written.
	s := newScene()
	s.does.refuses = &acts.GapChangedError{Now: now[3]}
	_, body, _ := post(t, newPages(t, s.options()), admin(), form, letting12("5", "4000", "a disk", "yes"))
	if !strings.Contains(body, `name="gap_offset" value="4711"`) || !strings.Contains(body, ">a disk</textarea>") {
		t.Errorf("the form after another gap: %s", body)
	}
}

// Who may not let a partition go on sees which have stopped and why, those first, without pseudonyms in it; and from
// where it is said that one has stopped a link leads there.
func TestPartitionsAreShown(t *testing.T) {
	s := newScene()
	s.pulse.Problems = []console.Problem{console.StoppedPartition("keyed", 12),
		{Part: "Kafka", Detail: "does not answer"}}
	o := s.options()
	var err error
	if o.Masker, err = access.NewMasker(access.Masking{Key: []byte(strings.Repeat("k", access.MaskKeyBytes)),
		Below: access.Admin, Fields: access.DefaultMaskedFields()}); err != nil {
		t.Fatal(err)
	}
	p := newPages(t, o)
	for _, role := range []access.Role{access.Viewer, access.Analyst, access.Owner} {
		who := access.Visit{Actor: access.Actor{Name: "vic", Role: role, Owners: []string{""}}}
		status, body, _ := get(t, p, who, "/partitions")
		if status != 200 || strings.Contains(body, "/resume") || !strings.Contains(body, "weir-run-2") ||
			!strings.Contains(body, "records of source partition 5 before offset 4711 never came") {
			t.Errorf("%s: %d %s", role, status, body)
		}
		for _, address := range []string{"/partitions/keyed/12/resume", "/partitions/keyed/13/resume"} {
			if status, body, _ := get(t, p, who, address); status != 403 || strings.Contains(body, "textarea") {
				t.Errorf("%s: %s: %d", role, address, status)
			}
			if status, _, _ := post(t, p, who, address, letting12("5", "4711", "a disk", "yes")); status != 403 {
				t.Errorf("%s: %s sent: %d", role, address, status)
			}
		}
	}
	_, body, _ := get(t, p, admin(), "/partitions")
	last := -1
	for _, name := range []string{"requests/1", "keyed/12", "requests/0", "keyed/0"} {
		at := strings.Index(body, `data-key="`+name+`"`)
		if at < last || at < 0 {
			t.Errorf("%s does not stand where it should, those that stopped first", name)
		}
		last = at
	}
	if strings.Count(body, "/resume\"") != 1 || !strings.Contains(body, "2 of 4 have stopped") ||
		!strings.Contains(body,
			"not reported") ||
		strings.Contains(body, "\u202e") {
		t.Errorf("an admin is shown %s", body)
	}
	for _, address := range []string{"/", "/health"} {
		if _, body, _ := get(t, p, admin(), address); strings.Count(body, `<a href="/partitions">See why</a>`) != 1 {
			t.Errorf("no way from %s to the partition that stopped", address)
		}
	}
	_, body, _ = get(t, p, admin(), "/partitions/keyed/12/resume")
	if !strings.Contains(body, "Records of requests/5 before offset 4711 that did not come to keyed/12") {
		t.Errorf("the form does not say what is lost: %s", body)
	}
	s.does.refuses = nil
	if len(s.does.did) != 0 {
		t.Errorf("it did %+v", s.does.did)
	}
}

// What is lost is said of each kind of gap.
func TestWhatIsLost(t *testing.T) {
	gap := func(side string, offset int64, source int, end int64) string {
		p := acts.Partition{Partition: 3, Offset: offset, GapSource: &source, GapOffset: &end}
		p.Side = map[string]acts.Partition{"r": {Side: "requests"}, "k": {Side: "keyed"}}[side].Side
		return lost(&p)[0]
	}
	for got, want := range map[string]string{
		gap("r", 10, 3, 25):  "What requests/3 holds from offset 10 to before offset 25, 15 records at most",
		gap("r", 30, 3, 25):  "What requests/3 holds before offset 25 and was not read",
		gap("r", -1, 3, 25):  "What requests/3 holds before offset 25 and was not read",
		gap("k", 10, -1, 9):  "What keyed/3 holds before offset 9 and was not read",
		gap("k", 10, -1, 19): "What keyed/3 holds from offset 10 to before offset 19, 9 records at most",
		gap("k", 10, 7, 25):  "Records of requests/7 before offset 25 that did not come to keyed/3",
	} {
		if !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
