package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"
)

// The ledger has a line a flake: date, commit, package, test and the first line of its failure, with tabs between.
const ledgerFields = 5

// readLedger counts the lines of each "package test". A file that is not there is an empty ledger.
func readLedger(file string) (map[string]int, error) {
	listed := map[string]int{}
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("ledger of flakes: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", ledgerFields)
		if len(fields) != ledgerFields {
			return nil, fmt.Errorf("%s: line %q has %d fields, want date, commit, package, test and failure with tabs between", file, line, len(fields))
		}
		listed[fields[2]+" "+fields[3]]++
	}
	return listed, nil
}

// enter appends a flake to the ledger.
func enter(file string, now time.Time, commit string, f flake) error {
	ledger, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("ledger of flakes: %w", err)
	}
	_, err = fmt.Fprintf(ledger, "%s\t%s\t%s\t%s\t%s\n", now.UTC().Format(time.DateOnly), cmp.Or(commit, "unknown"), f.pkg, f.test,
		strings.ReplaceAll(f.first, "\t", " "))
	if closed := ledger.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("ledger of flakes: %w", err)
	}
	return nil
}
