#!/usr/bin/env bash
# Fetches Apache Kafka from Maven Central into the cache, once, and prints the folder with its jars.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=lib.sh
. ./lib.sh

version=4.1.0
home=$(cache_dir)/kafka-$version
checksums=$PWD/kafka-$version.sha256

fetch() {
	rm -rf "$work/libs"
	mvn --batch-mode --quiet -Dstyle.color=never --file "$work/pom.xml" dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory="$work/libs" >&2 &&
		test -f "$work/libs/kafka_2.13-$version.jar" && test -f "$work/libs/kafka-tools-$version.jar"
}

# Jars are those that were looked at when the version was chosen, every one of them and no others.
genuine() {
	[[ $(find "$work/libs" -type f | wc -l) == $(wc -l <"$checksums") ]] &&
		(cd "$work/libs" && sha256sum --check --strict --quiet "$checksums") >&2
}

if [[ ! -d $home/libs ]]; then
	have mvn || die "Maven is missing: it fetches Apache Kafka. Install it (apt-get install maven), or set WEIR_TEST_KAFKA=host:port to use a broker of yours."
	mkdir -p "$(dirname "$home")"
	work=$(mktemp -d "$home.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	cat >"$work/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>weir</groupId>
  <artifactId>test-kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$version</version></dependency>
    <!-- Kafka logs through slf4j and brings no binding: without one a broker that fails to start says nothing. -->
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
POM
	log "fetching Apache Kafka $version from Maven Central"
	retry 4 fetch || die "Apache Kafka $version could not be fetched. Set WEIR_TEST_KAFKA=host:port to use a broker of yours."
	genuine || die "What was fetched as Apache Kafka $version is not what scripts/kafka-$version.sha256 names." \
		"Set WEIR_TEST_KAFKA=host:port to use a broker of yours."
	# Moved into place whole: a run that is interrupted, or another one beside it, never sees half of it.
	mkdir -p "$home"
	mv -T "$work/libs" "$home/libs" 2>/dev/null || [[ -d $home/libs ]] || mv "$work/libs" "$home/libs"
fi
printf '%s\n' "$home/libs"
