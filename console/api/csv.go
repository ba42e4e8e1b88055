package api

import (
	"bytes"
	"mime"
	"strings"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/shown"
)

// csvFile is an answer as CSV.
type csvFile struct {
	name string // of the file, without weir- and .csv
	rows [][]string
	next string // cursor of the page behind it; empty: there is none
}

// mayBeFile finds out whether the answer is to be CSV: by format, else by Accept. Whoever takes history away as a file
// needs the act for it, and is in the audit trail before history is asked.
func (c *call) mayBeFile() error {
	wanted := c.values["format"] == "csv"
	if c.values["format"] == "" {
		wanted = prefersCSV(c.r.Header.Get("Accept"))
	}
	if !wanted || !c.csv {
		return nil
	}
	if err := access.MayAny(c.actor, access.Export); err != nil {
		return err
	}
	if err := c.o.Witness.Tell(c.r, c.actor, access.Export); err != nil {
		return err
	}
	c.asFile = true
	return nil
}

// prefersCSV reports whether CSV is the first of the forms that an Accept names, or the only one.
func prefersCSV(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		switch kind, _, _ := mime.ParseMediaType(part); kind {
		case "text/csv", "text/*":
			return true
		case "application/json", "application/*", "*/*":
			return false
		}
	}
	return false
}

// file writes the body and the headers of a file; its next page stands in a Link, after RFC 8288.
func (c *call) file(f *csvFile) []byte {
	var b bytes.Buffer
	_ = shown.CSV(&b, f.rows) // a buffer takes all
	h := c.w.Header()
	h.Set("Content-Disposition", `attachment; filename="weir-`+f.name+`.csv"`)
	if f.next != "" {
		u := *c.r.URL
		q := u.Query()
		q.Set("cursor", f.next)
		u.RawQuery = q.Encode()
		h.Set("Link", "<"+u.RequestURI()+`>; rel="next"`)
	}
	return b.Bytes()
}
