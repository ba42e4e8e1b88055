package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// publishPatience bounds how long a command that has changed a rule waits for Redis to take it. The change is stored by
// then, and weir run publishes what nobody else could.
const publishPatience = 5 * time.Second

// publishTimeout bounds each answer of a server meanwhile: of several nodes of a cluster, one that hangs may be the first to
// be asked where the modes are, and a demotion is to take effect within a second.
const publishTimeout = 500 * time.Millisecond

// publication is whether gates have been told of the modes that a command has left in the rule store.
type publication struct {
	Published   bool   `json:"published"`
	Unpublished string `json:"unpublished,omitempty"` // why not

	news int // modes that Redis did not know yet
	at   string
}

// publishModes makes the stored modes known to all gates, so that a promotion or demotion needs nobody else to take
// effect. That Redis does not take it is no failure of the command: who may change rules may have no access to Redis.
func (s *store) publishModes(ctx context.Context) publication {
	ctx, cancel := context.WithTimeout(ctx, publishPatience)
	defer cancel()
	p := publication{}
	err := func() error {
		server, err := service.RedisServer(&s.config.Redis)
		if err != nil {
			return err
		}
		server.Timeout = publishTimeout
		redis, err := blocklist.Connect(server, s.config.Namespace)
		if err != nil {
			return err
		}
		defer func() { _ = redis.Close() }() // nothing is under way any more
		p.at = redis.Address()
		modes, err := s.Modes(ctx)
		if err != nil {
			return err
		}
		p.news, err = redis.SyncModes(ctx, service.Now(), modes)
		return err
	}()
	p.Published = err == nil
	if err != nil {
		p.Unpublished = err.Error()
	}
	return p
}

// show says what became of it. changed is whether the command has changed anything: another process may have been quicker to
// publish that. stored is what to say of the change itself where gates do not know yet.
func (p *publication) show(w io.Writer, changed bool, stored string) error {
	var err error
	switch {
	case !p.Published && !changed:
		_, err = fmt.Fprintf(w, "whether gates know is not known, Redis did not answer (%s): weir run publishes what they lack when it does\n",
			terminal.Cell(p.Unpublished))
	case !p.Published:
		_, err = fmt.Fprintf(w, "gates do not know yet, Redis did not take it (%s): %s when Redis answers\n",
			terminal.Cell(p.Unpublished), stored)
	case p.news > 0 || changed:
		_, err = fmt.Fprintf(w, "published to %s: gates act on it within a second\n", p.at)
	}
	return err
}
