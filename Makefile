# The commands of this repository. `make help` lists them.

GO ?= go
FUZZTIME ?= 5s
BENCH ?= .
BENCHTIME ?= 1s
# TESTARGS go to go test. A package may take long where two cores are busy with others.
TESTARGS ?= -timeout 40m

# Each module is built as a user builds it: go.work is for editors.
export GOWORK := off

# The modules in other folders, as far as they are there: those that users import, and those that
# only have tests, tools or an example.
ADAPTERS := $(patsubst %/go.mod,%,$(wildcard kube/go.mod kube/boundtokens/grpc/go.mod externalsigner/go.mod attest/tpm/goattestation/go.mod vectors/go.mod))
TESTS := tools tools/image tools/install $(patsubst %/go.mod,%,$(wildcard test/go.mod test/*/go.mod kube/examples/*/go.mod))

# each runs a command in each of some folders, after one that failed too.
each = @failed=; for module in $(1); do \
	echo "in $$module: $(2)"; (cd $$module && $(2)) || failed="$$failed $$module"; \
	done; [ -z "$$failed" ] || { echo "failed in:$$failed" >&2; exit 1; }

.PHONY: help demo check test race e2e matrix fuzz bench lint generate vectors cross setup setup-build setup-test

help: ## list the commands
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort | expand -t 10

demo: setup-build ## a simulated TPM proves a node, and attacks are refused
	@echo "make demo: the first time this compiles Go's cryptography and the TPM 2.0 reference simulator, in C: about half a minute on two cores"
	$(GO) run ./examples/quickstart

check: setup-build ## gofmt, build and vet of every module, and no test: under a minute once all is built
	@bad=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .); [ -z "$$bad" ] || { echo "not formatted: $$bad" >&2; exit 1; }
	$(call each,. $(ADAPTERS) $(TESTS),$(GO) list -export ./... >/dev/null && $(GO) vet ./...)

test: setup-test ## every unit test of the modules that users import
	$(call each,. $(ADAPTERS),$(CURDIR)/scripts/test.sh $(TESTARGS) ./...)

race: ## make test and the replay of the vectors, with the race detector
	@$(MAKE) --no-print-directory test TESTARGS='-race -timeout 40m'
	$(call each,test,$(CURDIR)/scripts/test.sh -race -timeout 40m ./vectors/...)

e2e: setup-build ## joins of real kubelets to a real control plane, built on first use; the SDK against other libraries
	scripts/kube-binaries.sh v1.36.3 v1.37.2
	scripts/cluster-api-managers.sh
	$(call each,test,NO_SKIPS=1 $(CURDIR)/scripts/test.sh -count=1 -timeout 40m ./clouds/... ./controlplane/... ./e2e/... ./house/... ./interop/... ./kube/... ./monitoring/... ./size/...)
	$(call each,$(filter-out test,$(TESTS)),NO_SKIPS=1 $(CURDIR)/scripts/test.sh -count=1 -timeout 40m ./...)
	$(call each,test/kubernetes,NO_SKIPS=1 $(CURDIR)/scripts/test.sh -modfile=go137.mod -tags kubernetes137 -short -count=1 -timeout 40m .)
	$(call each,kube,NO_SKIPS=1 $(CURDIR)/scripts/test.sh -modfile=go137.mod -timeout 40m ./...)

matrix: setup-build ## the tests of live nodes on every supported release of Kubernetes; prints a table
	scripts/matrix.sh

fuzz: setup-build ## every fuzz target for FUZZTIME (5s) each
	FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

bench: setup-build ## every benchmark, also of other libraries; BENCH selects, BENCHTIME sets the time
	$(call each,. attest/tpm/goattestation test,$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./...)

lint: setup-build ## gofmt, shellcheck, golangci-lint, govulncheck, go mod tidy, messages of commits
	scripts/lint.sh

generate: setup-build ## write again what generators make: deep copies, the import graph, the vectors' index
	scripts/generate.sh

vectors: setup-build ## make the test vectors again
	$(GO) run -C test ./vectors/generate ..

cross: ## build without cgo for every supported platform
	GO=$(GO) scripts/cross.sh

setup: ## install what all commands need (as root, on Debian)
	@scripts/setup.sh all

setup-build:
	@scripts/setup.sh build

setup-test:
	@scripts/setup.sh test
