#!/usr/bin/env bash
# Fetches the JSON schemas of Kubernetes' objects, of many of its versions, into the cache, once, and prints their folder. They are the
# data of a package of PyPI, kubernetes-validate; nothing of it is run.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=lib.sh
. ./lib.sh

version=1.37.0
home=$(cache_dir)/kubernetes-schemas-$version

if [[ ! -d $home/schemas ]]; then
	mkdir -p "$home"
	work=$(mktemp -d "$home/fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	log "fetching the schemas of Kubernetes from PyPI"
	retry 4 python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" "kubernetes-validate==$version" ||
		die "the schemas of Kubernetes could not be fetched with pip"
	python3 -m zipfile -e "$work"/*.whl "$work/wheel"
	mv -T "$work/wheel/kubernetes_validate/kubernetes-json-schema" "$home/schemas" 2>/dev/null || [[ -d $home/schemas ]]
fi
printf '%s\n' "$home/schemas"
