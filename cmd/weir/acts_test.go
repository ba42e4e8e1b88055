package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/console/pages"
	"github.com/weirhq/weir/console/remote"
	"github.com/weirhq/weir/console/reveal"
	"github.com/weirhq/weir/traffic"
)

// way is how a program or a terminal does an act, or the reason why it does not.
type way struct {
	command string // of askers, which sends the act to a server; empty: none does, for noCommand
	method  string // of a remote.Client; empty: none, for noCommand
	// noAPI, noPage and noCommand are why there is none.
	noAPI, noPage, noCommand string
}

// ways has every act of access.Acts. The exceptions that are left hold: Public and Self are of a session, which only a
// browser has, and their pages are those of package signin, which this table does not see; Export and SaveView have
// another way to the same end, by which more is asked than those roles have; Reveal by a command would leave what was
// masked in the history of a shell. That Apply has no page is the only one of an act that changes what rules do.
func ways() map[access.Act]way {
	const ofPeople = "it is about the session of a person, and commands have a token"
	return map[access.Act]way{
		access.Public: {noAPI: "what needs nobody to be signed in is the sign-in itself and its style sheet",
			noCommand: ofPeople},
		access.View: {command: "rules list", method: "Rulebook"},
		access.Self: {noPage: "signing out is package signin's, and it is on every page", noCommand: ofPeople},
		access.Export: {noAPI: "the answers of history can be had as CSV: the format is asked for, and the role " +
			"with it",
			noCommand: "--output writes what View answers"},
		access.SaveView: {noAPI: "a view is an address of the explorer",
			noCommand: "a view is an address of the explorer"},
		access.Reveal:     {noCommand: "a value that somebody is not shown is not to stand in the history of a shell"},
		access.Release:    {command: "blocks release", method: "Release"},
		access.Promote:    {command: "rules promote", method: "Promote"},
		access.Demote:     {command: "rules demote", method: "SetMode"},
		access.Disable:    {command: "rules disable", method: "SetMode"},
		access.Enable:     {command: "rules demote", method: "SetMode"},
		access.Apply:      {command: "rules apply", method: "Apply"},
		access.SetLimit:   {command: "rules set-limit", method: "SetLimit"},
		access.Rollback:   {command: "rules rollback", method: "Rollback"},
		access.Allow:      {command: "allow add", method: "ChangeAllow"},
		access.Reset:      {command: "counters reset", method: "ResetCount"},
		access.Erase:      {command: "history erase", method: "Erase"},
		access.Block:      {command: "blocks add", method: "Block"},
		access.NeverBlock: {command: "never-block add", method: "ChangeNeverBlock"},
		access.Resume:     {command: "partitions resume", method: "ResumePartition"},
	}
}

// TestEveryActHasEveryWay: what people do, they do by the API, on a page, by a command that asks a server, and by its
// client, or it stands in ways why not.
func TestEveryActHasEveryWay(t *testing.T) {
	t.Parallel()
	byAPI, byPage := actRoutes(t)
	all, asks, answers := ways(), askers(), described(t, skeleton{full: true})
	client := reflect.TypeFor[*remote.Client]()
	for _, act := range access.Acts() {
		w, known := all[act]
		delete(all, act)
		if !known {
			t.Errorf("%s is not among the ways: how is it done?", act)
			continue
		}
		of := func(r access.Route) bool { return r.Act == act }
		for _, way := range []struct {
			name, excuse string
			there        bool
		}{
			{"route of the API", w.noAPI, slices.ContainsFunc(byAPI, of)}, {"page", w.noPage,
				slices.ContainsFunc(byPage, of)},
			{"command", w.noCommand, w.command != ""}, {"method of the API's client", w.noCommand, w.method != ""},
		} {
			if way.there == (way.excuse != "") {
				t.Errorf("%s: a %s is there: %t; the reason why not: %q", act, way.name, way.there, way.excuse)
			}
		}
		if _, ok := client.MethodByName(w.method); w.method != "" && !ok {
			t.Errorf("%s: remote.Client has no method %s", act, w.method)
		}
		if arguments, asks := asks[w.command]; asks {
			commandDoes(t, act, w.command, arguments, answers)
		} else if w.command != "" {
			t.Errorf("%s: weir %s is not among those that ask a server", act, w.command)
		}
	}
	for act := range all {
		t.Errorf("%s is among the ways, and no act", act)
	}
}

// commandDoes runs a command with each of its arguments against a server that carries nothing out, and looks whether it
// asks for a route of the act.
func commandDoes(t *testing.T, act access.Act, command, all string, answers map[access.Route][]byte) {
	t.Helper()
	var mu sync.Mutex
	var asked, said []string
	mux := http.NewServeMux()
	for route, body := range answers {
		mux.HandleFunc(route.Method+" "+route.Pattern, func(w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			asked = append(asked, string(route.Act))
			mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			if route.CSRF() { // that it came is all that is asked
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = w.Write(body)
		})
	}
	for arguments := range strings.SplitSeq(all, "|") {
		o, panicked := answering(t, command, arguments, "table", mux.ServeHTTP)
		said = append(said, fmt.Sprintf("exit code %d, %s%s", o.code, o.stderr, panicked))
	}
	mu.Lock()
	defer mu.Unlock()
	wanted := act
	if act == access.Enable { // demote is enable of a rule that is off: the server tells them apart
		wanted = access.Demote
	}
	if !slices.Contains(asked, string(wanted)) {
		t.Errorf("%s: weir %s asked for %v: %s", act, command, asked, said)
	}
}

// actRoutes are the routes of the API and of the pages.
func actRoutes(t *testing.T) (byAPI, byPage []access.Route) {
	t.Helper()
	a, p := served(t)
	return a.Routes(), p
}

// served is the API, and the routes of the pages. Nothing can be asked of their stores.
func served(t *testing.T) (a *api.API, byPage []access.Route) {
	t.Helper()
	now := func() traffic.Time { return 0 }
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	revealer, err := reveal.New(reveal.Options{Trail: struct{ reveal.Trail }{}, Refuse: func(http.ResponseWriter,
		*http.Request, error) {
	}, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	a, err = api.New(api.Options{
		Acts: struct{ acts.Acts }{}, Health: func() api.Health { return api.Health{} }, Logger: log,
		Registerer: prometheus.NewRegistry(), Witness: struct{ access.Witness }{},
		Reveal: func(context.Context, access.Actor, reveal.Request) (string, error) { return "", nil },
		Reader: &api.Reader{
			Rules: struct{ api.RuleStore }{}, History: struct{ api.History }{}, Trail: struct{ api.Trail }{},
			Blocks: struct{ api.Blocks }{}, Clock: now,
			Explorer: struct{ api.Explorer }{}, Teller: struct{ api.Teller }{}, Dossiers: struct{ api.Dossiers }{},
			Letters: &remote.Client{}, Counts: &remote.Client{},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err := pages.New(pages.Options{
		Rules: struct{ pages.Rules }{}, History: struct{ pages.History }{}, Blocks: struct{ pages.Blocks }{},
		Explorer: struct{ pages.Explorer }{},
		Evidence: struct{ pages.Evidence }{}, Views: struct{ pages.Views }{}, Acts: struct{ pages.Acts }{},
		Pulse: func() console.Pulse { return console.Pulse{} }, Clock: now, Logger: log,
		Witness: struct{ access.Witness }{},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := access.NewMux(func(http.ResponseWriter, *http.Request, error) {}, nil)
	revealer.AddTo(mux)
	return a, append(p.Routes(), mux.Routes()...)
}
