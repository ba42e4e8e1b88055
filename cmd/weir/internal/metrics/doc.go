// Package metrics holds docs/metrics.md to what the processes of weir export: it opens a real installation and reads what
// its registries describe, also of series that are not there yet. There is nothing here but tests.
package metrics
