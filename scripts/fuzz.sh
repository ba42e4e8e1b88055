#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the repository for TIME (such as 30s), one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=lib.sh
. scripts/lib.sh

for_each=${1:?how long to run each target, such as 30s}
found=0
while read -r package; do
	listed=$(go test -list '^Fuzz' "$package") || die "$package: its tests do not build"
	for target in $listed; do
		[[ $target == Fuzz* ]] || continue # the rest of the list is the package's result line
		found=$((found + 1))
		log "$package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$for_each" "$package"
	done
done < <(go list ./...)
((found > 0)) || die "no fuzz target was found"
log "$found fuzz targets, no failure"
