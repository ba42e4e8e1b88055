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
if (($# == 0)); then exit 0; fi
if [[ $1 != run ]]; then exec "$linter" "$@"; fi

# What it remembers of a package is kept under the package's contents, but names files by where they lay. So it always reads the same folder,
# into which each checkout lays its files when its turn comes: what another checkout has linted is not linted again.
tree=$(cache_dir)/lint-tree
mkdir -p "$tree"
exec 9>"$tree.lock"
if have flock; then flock 9; fi
rm -rf "$tree"
mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
	if [[ -f $file ]]; then printf '%s\0' "$file"; fi
done | tar -c --null -T - | tar -x -C "$tree"
export GOLANGCI_LINT_CACHE=${GOLANGCI_LINT_CACHE:-$(cache_dir)/lint-cache}
cd "$tree"
"$linter" "$@"
