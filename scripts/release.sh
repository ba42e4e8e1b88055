#!/usr/bin/env bash
# release.sh [FOLDER]: builds a release into FOLDER (dist): for each platform a static program, the list of what it was built from
# (CycloneDX, JSON), and SHA256SUMS of all of them. VERSION says which version it is; unset, git does. The same sources, the same version
# and the same Go give the same bytes, wherever they are built.
set -euo pipefail
out=$(realpath -m "${1:-dist}")
cd "$(dirname "$0")/.."
# shellcheck source=lib.sh
. scripts/lib.sh

version=${VERSION:-$(git describe --tags --always --dirty)}
if [[ ! $version =~ ^[0-9A-Za-z][0-9A-Za-z.+_-]*$ ]]; then
	die "version: got '$version'; allowed: letters, digits and . + _ -, such as v1.2.3. Set VERSION, or build in a clone of the repository."
fi
# Nothing of the environment may change what comes out. The levels are those that each processor of the kind has.
export CGO_ENABLED=0 GOFLAGS='' GOEXPERIMENT='' GOAMD64=v1 GOARM64=v8.0 GOOS=linux GOFIPS140=off LC_ALL=C

mkdir -p "$out"
work=$(mktemp -d "$out/build.XXXXXX")
trap 'rm -rf "$work"' EXIT
scripts/cyclonedx-gomod.sh
for GOARCH in amd64 arm64; do
	export GOARCH
	name=weir-$version-$GOOS-$GOARCH
	log "building $name with $(go env GOVERSION)"
	go build -trimpath -buildvcs=false -ldflags "-s -w -X main.linkedVersion=$version" -o "$work/$name" ./cmd/weir
	scripts/cyclonedx-gomod.sh bin -json -std -noserial -notimestamp -version "$version" -output "$work/$name.cdx.json" "$work/$name"
done
(cd "$work" && sha256sum -- * >SHA256SUMS)
# A folder holds one release: what an earlier build left would not be in SHA256SUMS.
rm -f "$out"/weir-*-linux-* "$out/SHA256SUMS"
mv "$work"/* "$out/"
log "release $version: $out"
cat "$out/SHA256SUMS"
