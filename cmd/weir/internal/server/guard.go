package server

import (
	"time"

	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/sessions"
)

// newGuard makes what finds out who asks: people by a session, programs by a token. Where the configuration names
// nobody who could sign in, the log says what lets somebody in.
func newGuard(o Options, desk *history.Store) (*signin.Guard, error) {
	c := &o.Config.Console
	how := c.SignIn()
	how.Sessions, how.Clock, how.Logger, how.Registerer = sessions.New(desk.DB), time.Now, o.Log, o.Registerer
	how.TLS = c.TLS.CertFile != ""
	how.Local = o.Local
	switch {
	case how.Local != nil && c.LocalAdmin:
		o.Log.Warn("whoever is at this machine may do everything at the console (console.local_admin)", "as",
			how.Local.Name)
	case how.Local == nil && !c.Known():
		o.Log.Warn("nobody is known to the console yet: weir console invite, with this configuration, prints a link that signs in once; " +
			"console.oidc, console.tokens and console.local_admin are other ways in (docs/access.md)")
	}
	return signin.New(how)
}
