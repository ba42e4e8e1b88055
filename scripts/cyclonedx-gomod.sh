#!/usr/bin/env bash
# cyclonedx-gomod.sh [ARGUMENT...]: runs the pinned cyclonedx-gomod, which writes what a program of Go was built from, and which it first
# builds into the cache through the Go module proxy if it is not there. Without arguments it only builds, once.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

version=v1.10.0
home=$(cache_dir)/cyclonedx-gomod-$version-$(go env GOVERSION) # it says in what it writes which program it was

if [[ ! -x $home/cyclonedx-gomod ]]; then
	log "building cyclonedx-gomod $version (half a minute, once)"
	mkdir -p "$home"
	work=$(mktemp -d "$home/build.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	CGO_ENABLED=0 GOBIN=$work GOFLAGS='-trimpath' GOOS='' GOARCH='' retry 4 go install "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$version"
	mv "$work/cyclonedx-gomod" "$home/cyclonedx-gomod"
	rm -rf "$work"
	trap - EXIT
fi
if (($# > 0)); then exec "$home/cyclonedx-gomod" "$@"; fi
