#!/usr/bin/env bash
# keep-binary.sh PROGRAM ARGUMENT...: for `go test -exec`: runs the program of a package's tests, and leaves it as a link in the folder
# WEIR_TEST_KEPT, so that a test that failed can be run again without building anything.
set -euo pipefail
ln -f "$1" "${WEIR_TEST_KEPT:?folder for the programs of tests}/" 2>/dev/null || cp "$1" "$WEIR_TEST_KEPT/"
exec "$@"
