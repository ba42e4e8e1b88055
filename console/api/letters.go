package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/history/explore"
)

// lettersTimeout bounds how long dead letters are read for one request: a stage or a reason is looked for in all of them.
const lettersTimeout = answerWithin - time.Second

// Letter is a dead letter. Hidden says that its detail and what it holds are left out: both are of any shape, and may name somebody.
type Letter struct {
	letters.Letter
	Hidden bool `json:"hidden,omitempty"`
}

func historyDead(c *call) (any, error) {
	p, err := c.page()
	if err != nil {
		return nil, err
	}
	f := letters.Filter{Stage: c.values["stage"], Reason: c.values["reason"]}
	if f.Since, _, err = explore.ParseSpan(c.values["since"], "", c.o.Reader.Clock().Std()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), lettersTimeout)
	defer cancel()
	found, err := c.o.Reader.Letters.Letters(ctx, f, p)
	bad := (*explore.BadFilterError)(nil)
	switch {
	case errors.As(err, &bad):
		return nil, err
	case ctx.Err() != nil:
		return nil, &httpError{status: http.StatusServiceUnavailable, title: "there are too many dead letters",
			detail: fmt.Sprintf("the dead letters could not be read within %v; since bounds how many are read, and without stage and reason only the newest are", lettersTimeout), cause: err}
	case err != nil:
		return nil, &httpError{status: http.StatusServiceUnavailable, title: "a store does not answer", detail: "Kafka does not answer: which dead letters there are is not known", cause: err}
	}
	all := make([]Letter, len(found.Letters))
	for i, l := range found.Letters {
		all[i] = Letter{Letter: l}
		if c.mask.Any() {
			all[i].Detail, all[i].Value, all[i].Text, all[i].Hidden = "", nil, "", true
		}
	}
	head := []string{"at", "stage", "reason", "topic", "partition", "offset", "size", "detail", "text"}
	return listed(c, counted(all, found.Total, found.Next), "dead", head, func(l *Letter) []string {
		return []string{l.At.String(), l.Stage, l.Reason, l.Topic, strconv.Itoa(l.Partition), number(l.Offset), strconv.Itoa(l.Size), l.Detail, l.Text}
	})
}
