package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/service"
)

// schemaPending is in the mark of a schema that is being made.
const schemaPending = "pending"

// claimSchema sees to it that weir dev works in no schema but one that it has made from this data directory: its topics
// begin anew with the directory, and a schema of another installation would take that for a new life of the requests. The
// mark in the directory names the schema and its origin; before it is made, that it will be.
func (d *dev) claimSchema(ctx context.Context) error {
	if d.ownPostgres() {
		return nil // it lies in the directory itself
	}
	found, err := d.schemaOrigin(ctx)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(d.directory.Path(devSchema))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	schema, origin, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	switch {
	case found == "":
		return d.markSchema(schemaPending)
	case schema == d.conf.Namespace && (origin == found || origin == schemaPending):
		return nil
	}
	return fmt.Errorf("schema %s in PostgreSQL at %s was not made by weir dev in %s: it may be an installation of yours, or what is left of another "+
		"weir dev; name another --namespace, or drop that schema", d.conf.Namespace, d.conf.Postgres.URL.Server(), d.directory.Path())
}

// signSchema marks the schema as made from this data directory.
func (d *dev) signSchema(ctx context.Context) error {
	if d.ownPostgres() {
		return nil
	}
	origin, err := d.schemaOrigin(ctx)
	if err != nil {
		return err
	}
	return d.markSchema(origin)
}

func (d *dev) markSchema(origin string) error {
	return os.WriteFile(d.directory.Path(devSchema), []byte(d.conf.Namespace+" "+origin+"\n"), 0o600)
}

// schemaOrigin tells this making of the schema from any other; "" where there is none yet.
func (d *dev) schemaOrigin(ctx context.Context) (string, error) {
	s, err := service.OpenHistory(ctx, d.conf, d.log)
	if err != nil {
		return "", err
	}
	defer s.Close()
	return s.Origin(ctx)
}
