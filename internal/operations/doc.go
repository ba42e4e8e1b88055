// Package operations holds what an operator is given to its word: the release that scripts/release.sh builds, the units below deploy/systemd,
// and the figures and commands of docs/operations.md. There is nothing here but tests.
package operations
