# `make help` lists every target. docs/development.md says more about the tests.

SHELL := /bin/bash
.DEFAULT_GOAL := help

FUZZTIME ?= 30s
BENCH ?= .
ARGS ?=

.PHONY: help
help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/weir
	go build -trimpath -o bin/weir ./cmd/weir

.PHONY: dev
dev: ## build, then run everything in one process with a demo and the console; ARGS="--fresh" for flags
	@echo "building bin/weir (the first time fetches and compiles its modules)"
	@$(MAKE) --no-print-directory build
	bin/weir dev $(ARGS)

.PHONY: test
test: ## what a landing needs: set-up, lint, every test once against real servers that it starts and stops
	scripts/test.sh all

.PHONY: quick
quick: ## while you work: lint and tests of what changed since main and of what imports it; nothing has to be running
	scripts/test.sh quick

.PHONY: test-night
test-night: ## the long forms, and the race detector over everything; before a release. Takes more than an hour
	scripts/test.sh night

.PHONY: test-embedded
test-embedded: ## all tests with embedded parts; nothing has to be running
	scripts/test.sh embedded

.PHONY: test-real
test-real: ## `make test` without set-up and lint
	scripts/test.sh landing

.PHONY: test-faults
test-faults: ## kill, freeze, restart and put back processes and servers under load for about 45 minutes; prints tables
	scripts/test.sh faults

.PHONY: test-mutants
test-mutants: ## break what the documents promise, one by one, and want a test to notice. ARGS="-only access"
	scripts/test.sh mutants $(ARGS)

.PHONY: lint
lint: ## golangci-lint, go vet's analyzers among its own (built into the cache the first time)
	scripts/test.sh lint

.PHONY: fmt
fmt: ## format the Go code
	scripts/golangci-lint.sh fmt ./...

.PHONY: bench
bench: ## run the benchmarks, with real servers that it starts and stops; BENCH=regexp picks some
	scripts/with-servers.sh go test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 ./...

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s) each
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: run-deps
run-deps: ## Kafka, Redis and PostgreSQL for use by hand until Ctrl-C, with their data kept; ARGS="--fresh" erases it first
	scripts/run-deps.sh $(ARGS)

.PHONY: release
release: ## static programs for linux/amd64 and arm64 with SBOM and SHA256SUMS, into dist/; VERSION=v1.2.3 says which version
	scripts/release.sh dist

.PHONY: clean
clean: ## remove what was built here (what was fetched stays in the cache)
	rm -rf bin dist
	go clean -testcache
