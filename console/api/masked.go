package api

import (
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/traffic"
)

// What of the answers names somebody is shown here as who asks is shown it.

func (c *call) maskHit(h *history.RecordedHit) {
	m := c.o.Masker
	if !m.MasksAny(c.actor) {
		return
	}
	for _, s := range []*traffic.Subject{&h.Subject, &h.BlockSubject} {
		if *s != "" {
			*s = m.Subject(c.actor, *s)
		}
	}
	for i := range h.Samples {
		h.Samples[i] = m.Sample(c.actor, h.Samples[i])
	}
	h.Reason = m.Text(c.actor, h.Reason)
}

func (c *call) maskDecision(d *history.RecordedDecision) {
	d.Subject, d.Reason = c.o.Masker.Subject(c.actor, d.Subject), c.o.Masker.Text(c.actor, d.Reason)
}

func (c *call) maskAct(e *audit.Entry) {
	m := c.o.Masker
	e.Object, e.Reason, e.Detail = m.Text(c.actor, e.Object), m.Text(c.actor, e.Reason), m.Text(c.actor, e.Detail)
	e.Before, e.After = m.Text(c.actor, e.Before), m.Text(c.actor, e.After)
}

func (c *call) maskStory(st *explore.Story) {
	m := c.o.Masker
	if !m.MasksAny(c.actor) {
		return
	}
	if st.Subject != "" {
		st.Subject = m.Subject(c.actor, st.Subject)
	}
	if st.Hit != nil {
		c.maskHit(st.Hit)
	}
	for i := range st.Rows {
		if of := &st.Rows[i].BlockSubject; *of != "" {
			*of = m.Subject(c.actor, *of)
		}
	}
	for i := range st.Decisions {
		c.maskDecision(&st.Decisions[i])
	}
	for i := range st.Acts {
		c.maskAct(&st.Acts[i].Entry)
	}
}

func (c *call) maskWhy(a *why.Answer) {
	c.maskStory(&a.Story)
	for i := range a.Also {
		a.Also[i].Subject = c.o.Masker.Subject(c.actor, a.Also[i].Subject)
	}
}

func (c *call) maskDossier(d *evidence.Dossier) {
	m := c.o.Masker
	for i := range d.Top {
		one := &d.Top[i]
		if one.Subject != "" {
			one.Subject = m.Subject(c.actor, one.Subject)
		}
		for n := range one.Samples {
			one.Samples[n] = m.Sample(c.actor, one.Samples[n])
		}
	}
	for i := range d.Notes {
		d.Notes[i] = m.Text(c.actor, d.Notes[i])
	}
}
