package server

import (
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/history/sessions"
)

// newGuard makes what finds out who asks: people by a session, programs by a token. Where nobody could sign in, nothing is served.
func newGuard(o Options) (*signin.Guard, error) {
	how := o.Config.Console.SignIn()
	how.Sessions, how.Clock, how.Logger, how.Registerer = sessions.New(o.History.DB), time.Now, o.Log, o.Registerer
	if how.Local = o.Local; how.Local != nil {
		return signin.New(how)
	}
	if somebody, _ := o.Config.Console.Open(); !somebody {
		return nil, usage.Errorf("console: nobody could sign in: set console.oidc or console.tokens (docs/access.md)")
	}
	return signin.New(how)
}
