package doctor

import (
	"context"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/postgres"
)

// lookAtRoles says whether those who work on the schema and those who read it may do what they need, and no more.
func (e *examination) lookAtRoles(ctx context.Context) []Finding {
	if !e.migrated() {
		return nil
	}
	r, err := e.history.InspectRoles(ctx)
	if err != nil {
		return []Finding{failed("postgres role", err, "see PostgreSQL's log")}
	}
	return []Finding{judgeRole(&r), judgeReader(&r)}
}

func judgeRole(r *postgres.InspectedRoles) Finding {
	const name = "postgres role"
	switch {
	case len(r.Withheld) > 0:
		return failing(name, "let weir work as the role that ran weir migrate, or GRANT SELECT, INSERT, UPDATE, DELETE on them",
			"weir works as %s, which may not read and write all tables; withheld: %s", r.User, terminal.FirstFew(r.Withheld))
	case r.Superuser:
		return warning(name, "let weir work as a role of its own that owns its database: CREATE ROLE … LOGIN; ALTER DATABASE … OWNER TO …",
			"weir works as %s, a superuser; wanted: a role that owns the schema and nothing else", r.User)
	case len(r.Owners) > 0:
		return warning(name, "GRANT the owner to it, or let the owner run record and migrate: who does not own the tables by day makes and drops none",
			"weir works as %s, and what is in the schema belongs to %s", r.User, terminal.FirstFew(r.Owners))
	}
	return fine(name, "weir works as %s, which owns the schema and is no superuser", r.User)
}

func judgeReader(r *postgres.InspectedRoles) Finding {
	const name = "postgres reader"
	switch {
	case !r.Reader:
		return warning(name, "CREATE ROLE weir_read LOGIN PASSWORD …, then weir migrate", "there is no role weir_read: dashboards and analysts have nobody to ask as")
	case len(r.ReaderOver) > 0:
		return warning(name, "REVOKE ALL on them from weir_read and from PUBLIC", "weir_read may read or write tables, and not the views alone: %s", terminal.FirstFew(r.ReaderOver))
	case len(r.ReaderLack) > 0:
		return warning(name, "run weir migrate, or as the owner: "+r.ReaderLack[0], "weir_read may not read all views; %d grants are missing", len(r.ReaderLack))
	case !r.ReaderIn:
		return fine(name, "weir_read may read the views and nothing else, and may not log in yet")
	}
	return fine(name, "weir_read may log in, read the views, and nothing else")
}
