// Package desk is where the commands about rules and blocks do their work: on the stores of an installation, or through the API of a
// server, which asks for a token and needs no credentials of stores.
package desk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/console/remote"
	"github.com/weirhq/weir/history/audit"
)

// Reader is what commands ask: an api.Reader, or a server.
type Reader interface {
	Rulebook(ctx context.Context) ([]api.Rule, error)
	Rule(ctx context.Context, id string) (api.Rule, error)
	RuleTrail(ctx context.Context, id string, limit int) ([]audit.Entry, error)
	Blocklist(ctx context.Context, filter blocklist.Filter) (blocklist.Listing, error)
	AllowLists(ctx context.Context) ([]api.AllowList, error)
	AllowList(ctx context.Context, id string, version int) (api.AllowListAnswer, error)
}

var (
	_ Reader = (*api.Reader)(nil)
	_ Reader = (*remote.Client)(nil)
)

// Desk is what commands act upon.
type Desk struct {
	acts.Acts
	Reader
	// Server is the one that is asked; empty: the stores are.
	Server string
}

// Server says which server is asked, and with what.
type Server struct {
	URL       string // empty: none, the stores are
	Token     string
	TokenFile string // instead of Token
	Version   string // of the program
}

// maxToken bounds a token's file, in bytes.
const maxToken = 64 << 10

// Remote is a desk at a server.
func Remote(s Server) (*Desk, error) {
	c, err := Open(s)
	if err != nil {
		return nil, err
	}
	return &Desk{Acts: c, Reader: c, Server: c.Server()}, nil
}

// Open is a server that is asked: for acts, and for answers.
func Open(s Server) (*remote.Client, error) {
	if s.TokenFile != "" {
		f, err := os.Open(s.TokenFile)
		if err != nil {
			return nil, usage.Errorf("--token-file: %w", err)
		}
		text, err := io.ReadAll(io.LimitReader(f, maxToken))
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, usage.Errorf("--token-file: %w", err)
		}
		s.Token = strings.TrimSpace(string(text))
	}
	c, err := remote.New(remote.Options{Server: s.URL, Token: s.Token, Version: s.Version})
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	return c, nil
}

// Local is the actor of a command that has credentials of the stores: who could write to them may do what there is to do.
func Local(by string) access.Actor {
	return access.Actor{Name: by, Role: access.Admin, Via: access.ViaLocal}
}

// Told words an error of an act for the command line; others stay.
func Told(err error) error {
	var unknown *acts.UnknownName
	if errors.As(err, &unknown) {
		return unknownName(unknown)
	}
	if invalid := (*acts.Invalid)(nil); errors.As(err, &invalid) {
		return usage.Errorf("--%s: got %q; allowed: %s", invalid.Field, invalid.Got, invalid.Allowed)
	}
	return err
}

func unknownName(u *acts.UnknownName) error {
	switch {
	case u.Thing == "allow list" && len(u.Known) == 0:
		return errors.New(u.Error() + ": weir rules apply stores those of documents with kind: allow")
	case u.Thing == "partition":
		return fmt.Errorf("no stage has reported partition %s; weir partitions list shows those that were", u.Name)
	case u.Thing == "allow list":
		return usage.Unknown(u.Thing, u.Name, u.Known, "weir allow list shows them")
	}
	return usage.Unknown(u.Thing, u.Name, u.Known, "weir rules list shows the rules")
}
