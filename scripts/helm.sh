#!/usr/bin/env bash
# helm.sh [ARGUMENT...]: runs the pinned Helm, which it first builds into the cache through the Go module proxy if it is not there.
# Without arguments it only builds, which takes a few minutes, once.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

version=v3.22.0
home=$(cache_dir)/helm-$version

if [[ ! -x $home/helm ]]; then
	log "building Helm $version (a few minutes, once)"
	mkdir -p "$home"
	work=$(mktemp -d "$home/build.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	CGO_ENABLED=0 GOBIN=$work GOFLAGS='-trimpath' retry 4 go install "helm.sh/helm/v3/cmd/helm@$version"
	mv "$work/helm" "$home/helm"
	rm -rf "$work"
	trap - EXIT
fi
if (($# > 0)); then exec "$home/helm" "$@"; fi
