package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// fetched is the version that is fetched: the newest that has been tried with weir.
const fetched = embedded.V17

// Programs says where PostgreSQL's programs come from. The zero value looks in PATH and where packages put them, and
// fetches nothing.
type Programs struct {
	// Places are patterns of folders to look in after PATH; nil: where packages put them.
	Places []string
	// FetchInto is the folder for programs that are fetched where there are none: once, about 30 MB. Never as root, who
	// could not run them. Empty: none are fetched.
	FetchInto string
	// Repository is the Maven repository to fetch from; empty: Maven Central.
	Repository string
}

// find gives the folder with programs that fit the database in dir, or fetches one. Fetched programs do not run as
// root, and initdb refuses to make a database for them.
func (p Programs) find(ctx context.Context, dir string, say func(string)) (string, error) {
	places := p.Places
	if places == nil {
		places = usualPlaces()
	}
	if p.FetchInto != "" {
		places = append(places[:len(places):len(places)], filepath.Join(p.FetchInto, "postgres-*", "bin"))
	}
	folders, err := installed(places)
	if err != nil {
		return "", err
	}
	found, err := fitting(ctx, folders, dir)
	if err != nil || found != "" {
		return found, err
	}
	if p.FetchInto == "" || os.Geteuid() == 0 {
		return "", fmt.Errorf("%w; %s", ErrNoPostgres, waysOut)
	}
	say(fmt.Sprintf("fetching PostgreSQL %s, once", fetched))
	if err := p.fetch(ctx); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%w, and it could not be fetched (%s); %s", ErrNoPostgres, summary(err.Error()), waysOut)
	}
	return filepath.Join(p.target(), "bin"), nil
}

func (p Programs) target() string { return filepath.Join(p.FetchInto, "postgres-"+string(fetched)) }

// fetch gets the programs into a folder beside target and moves them there whole, so that nobody ever sees half of them.
func (p Programs) fetch(ctx context.Context) error {
	if err := os.MkdirAll(p.FetchInto, 0o755); err != nil {
		return fileError(p.FetchInto, err)
	}
	lock, err := awaitLock(ctx, p.FetchInto, time.Minute)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if hasPostgres(filepath.Join(p.target(), "bin")) {
		return nil // another process was quicker
	}
	work := filepath.Join(p.FetchInto, "unfinished")
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o755)); err != nil {
		return fileError(p.FetchInto, err)
	}
	failed := make(chan error, 1)
	// The library cannot be broken off. What it still does after ctx has ended touches its own folder only.
	go func() { failed <- p.trial(work) }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err = <-failed:
	}
	if err == nil {
		err = os.Rename(filepath.Join(work, "programs"), p.target())
	}
	return errors.Join(err, os.RemoveAll(work))
}

// trial fetches the programs and runs a server with them for a moment, which the library insists on, and which shows that
// they run here.
func (p Programs) trial(work string) error {
	port, err := portFor(0)
	if err != nil {
		return err
	}
	server := &Postgres{dir: filepath.Join(work, "trial"), programs: filepath.Join(work, "programs", "bin"), temporary: true}
	if err := os.Mkdir(server.dir, 0o700); err != nil {
		return fileError(work, err)
	}
	// Should this process be killed now, the watcher ends the server.
	if err := server.watch(nil); err != nil {
		return err
	}
	config := embedded.DefaultConfig().
		Version(fetched).Port(uint32(port)).Logger(io.Discard).StartTimeout(time.Minute).
		CachePath(filepath.Join(work, "archive")).
		BinariesPath(filepath.Join(work, "programs")).
		RuntimePath(filepath.Join(server.dir, "runtime")).
		DataPath(filepath.Join(server.dir, "data")).
		StartParameters(map[string]string{"unix_socket_directories": ""})
	if p.Repository != "" {
		config = config.BinaryRepositoryURL(p.Repository)
	}
	trial := embedded.NewDatabase(config)
	err = trial.Start()
	if err == nil {
		err = trial.Stop()
	}
	return errors.Join(err, server.Close())
}
