#!/usr/bin/env bash
# golangci-lint.sh [ARGUMENT...]: runs the pinned golangci-lint, which it first builds into the cache through the Go
# module proxy if it is not there. Without arguments it only builds. Building takes a few minutes, once.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

version=v2.12.0
# A linter built with an older Go refuses code that asks for a newer one: built anew for each version of Go.
home=$(cache_dir)/golangci-lint-$version-$(go env GOVERSION)
linter=$home/golangci-lint

if [[ ! -x $linter ]]; then
	log "building golangci-lint $version (a few minutes, once)"
	mkdir -p "$home"
	work=$(mktemp -d "$home/build.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	GOBIN=$work GOFLAGS='' retry 4 go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
	mv "$work/golangci-lint" "$linter"
	rm -rf "$work"
	trap - EXIT
fi
# What it remembers of a package is under the package's contents but names files by where they lay: shared between two
# checkouts, it reports lines of the other one, and its exceptions do not hold there. So each checkout has its own.
export GOLANGCI_LINT_CACHE=${GOLANGCI_LINT_CACHE:-$PWD/bin/lint-cache}
if (($# > 0)); then exec "$linter" "$@"; fi
