// Package doctest holds the documents to their word: every command in README.md and docs is run, or at least known to
// exist, and everything else that is shown as code is read by what reads it. There is nothing here but tests.
package doctest
