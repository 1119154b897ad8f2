# The commands of this repository. `make help` lists them.

GO ?= go
FUZZTIME ?= 5s
BENCH ?= .
BENCHTIME ?= 1s
# TESTARGS go to go test. A package may take long where two cores are busy with others.
TESTARGS ?= -race -timeout 40m

.PHONY: help demo test e2e fuzz bench lint vectors cross setup setup-build setup-test

help: ## list the commands
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 10

demo: setup-build ## a simulated TPM proves a node, and attacks are refused
	$(GO) run ./examples/quickstart

test: setup-test ## every test, with the race detector
	scripts/test.sh $(TESTARGS) ./...
	cd cloud && ../scripts/test.sh $(TESTARGS) ./...

e2e: setup-build ## the join through a real kube-apiserver, built on first use; key files with another package; a reconciler
	scripts/kube-binaries.sh
	cd test && NO_SKIPS=1 ../scripts/test.sh -count=1 -timeout 40m ./...
	cd test/kubernetes && NO_SKIPS=1 ../../scripts/test.sh -count=1 -timeout 40m ./...
	cd test/keyfiles && NO_SKIPS=1 ../../scripts/test.sh -count=1 -timeout 40m ./...
	cd test/reconciler && NO_SKIPS=1 ../../scripts/test.sh -count=1 -timeout 40m ./...
	cd test/clouds && NO_SKIPS=1 ../../scripts/test.sh -count=1 -timeout 40m ./...

fuzz: setup-build ## every fuzz target for FUZZTIME (5s) each
	FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

bench: setup-build ## every benchmark; BENCH selects, BENCHTIME sets the time
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...
	cd cloud && $(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...

lint: setup-build ## gofmt, golangci-lint, govulncheck, go mod tidy
	scripts/lint.sh

vectors: setup-build ## make the test vectors again
	$(GO) run ./internal/vectors

cross: ## build without cgo for every supported platform
	@for target in linux/amd64 linux/arm64 windows/amd64 darwin/arm64; do \
		echo "CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build ./..."; \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build ./... || exit 1; \
		(cd cloud && CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build ./...) || exit 1; \
	done

setup: ## install what all commands need (as root, on Debian)
	@scripts/setup.sh all

setup-build:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test
