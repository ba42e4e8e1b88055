package api

import (
	"github.com/weirhq/weir/blocklist"
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
	about := []string{string(h.Subject), string(h.BlockSubject)}
	for _, s := range []*traffic.Subject{&h.Subject, &h.BlockSubject} {
		if *s != "" {
			*s = m.Subject(c.actor, *s)
		}
	}
	for i := range h.Samples {
		h.Samples[i] = m.Sample(c.actor, h.Samples[i])
	}
	h.Reason = m.TextAbout(c.actor, h.Reason, about...)
}

func (c *call) maskDecision(d *history.RecordedDecision) {
	m, about := c.o.Masker, string(d.Subject)
	d.Subject, d.Reason = m.Subject(c.actor, d.Subject), m.TextAbout(c.actor, d.Reason, about)
}

// maskBlock masks why somebody ordered a block.
func maskBlock(c *call, b *blocklist.Block, of traffic.Subject) {
	if b != nil {
		b.Reason = c.o.Masker.TextAbout(c.actor, b.Reason, string(of))
	}
}

func (c *call) maskAct(e *audit.Entry) {
	m, about := c.o.Masker, e.Object
	for _, text := range []*string{&e.Object, &e.Reason, &e.Detail, &e.Before, &e.After} {
		*text = m.TextAbout(c.actor, *text, about)
	}
}

func (c *call) maskStory(st *explore.Story) {
	m := c.o.Masker
	if !m.MasksAny(c.actor) {
		return
	}
	if o := st.Order; o != nil {
		o.Reason = m.TextAbout(c.actor, o.Reason, string(o.Subject))
		o.Subject = m.Subject(c.actor, o.Subject)
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
	maskBlock(c, a.Block, a.Subject)
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
