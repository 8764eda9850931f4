# sqlbrain. `make help` lists the targets; .ci/run calls `make test`.

GO       ?= go
BIN      := bin/sqlbrain
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS  := -X main.version=$(VERSION)
PACKAGES := ./...
# Modules of their own: their dependencies stay out of the product's.
MODULES  := integration integration/robustness integration/benchmark integration/bench integration/tidb integration/containers integration/compose integration/deploy integration/console
# Those whose tests are no part of `make test`: they build Kubernetes.
LINTED   := $(MODULES) integration/k8s

# The race detector needs cgo and a C compiler; without them the tests run plain.
CC_FOUND := $(shell command -v $$($(GO) env CC) 2>/dev/null)
ifeq ($(CC_FOUND),)
export CGO_ENABLED := 0
RACE :=
else
RACE := -race
endif

.DEFAULT_GOAL := help

.PHONY: help
help: ## Explain the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/sqlbrain, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/sqlbrain

.PHONY: run
run: build ## Serve etcd clients on 127.0.0.1:2379 over a SQLite file in sqlbrain.data/
	$(BIN) serve --log-format text

.PHONY: test
test: lint unit integration ## Everything CI runs: lint, unit tests, storage suite, integration

.PHONY: unit
unit: ## Unit tests and the storage suite, with the race detector where there is a C compiler
	@$(if $(RACE),,echo "no C compiler: the tests run without the race detector")
	$(GO) test $(RACE) -timeout 30m $(PACKAGES)

# Not from Go's cache of results: it knows a test's packages, not the programs that it builds and runs.
.PHONY: integration
integration: ## The built binary beside etcd: etcdctl, histories, crashes, outages, suites from outside
	set -e; for m in $(MODULES); do (cd $$m && $(GO) test -count=1 -timeout 30m ./...); done

.PHONY: compose-test
compose-test: ## docker-compose.yml and Dockerfile on a Docker engine: build, start, lose the leader, remove
	cd integration/compose && SQLBRAIN_REQUIRE_ENGINES=1 $(GO) test -count=1 -timeout 60m -v .

.PHONY: test-tidb
test-tidb: ## Unit tests, storage suite and integration on the TiDB that SQLBRAIN_TEST_TIDB_URL names, tidb://user:password@host:4000/
	@test -n "$$SQLBRAIN_TEST_TIDB_URL" || { echo "set SQLBRAIN_TEST_TIDB_URL=tidb://user:password@host:4000/, whose user may create databases"; exit 2; }
	$(GO) test -count=1 -timeout 60m $(PACKAGES)
	set -e; for m in integration integration/robustness integration/tidb; do (cd $$m && $(GO) test -count=1 -timeout 60m ./...); done

.PHONY: compat
compat: ## Every claim of compatibility and random histories beside etcd, for half an hour; COMPATTIME bounds it
	cd integration && SQLBRAIN_LONG=1 $(GO) test -count=1 -timeout $(or $(COMPATTIME),2h) -v ./compat

.PHONY: compatibility
compatibility: ## Write docs/compatibility.md from the results of integration/compat
	cd integration && SQLBRAIN_COMPAT_PAGE=write $(GO) test -count=1 -timeout 30m ./compat

.PHONY: robustness
robustness: ## Three nodes while nodes, network and database fail, twice for TIME (default 10m): linearizable, watches exact; leases kept
	cd integration/robustness && SQLBRAIN_ROBUSTNESS_TIME=$(or $(TIME),10m) $(GO) test -count=1 -timeout 0 -v -run 'TestLinearizable|TestLeases' ./cluster

.PHONY: cluster
cluster: build ## Three nodes on this machine over a MariaDB or MySQL of their own, until Ctrl-C
	cd integration && SQLBRAIN_INTEGRATION_PROGRAMS=$(CURDIR)/bin $(GO) run ./cmd/cluster

.PHONY: k8s-storage
k8s-storage: ## kube-apiserver's storage tests on every engine and through a follower; writes what passed into docs/kubernetes.md
	cd integration && SQLBRAIN_LONG=1 SQLBRAIN_REQUIRE_ENGINES=1 SQLBRAIN_KUBERNETES_PAGE=write \
	  $(GO) test -count=1 -timeout 4h -v -run TestAPIServerStorage ./kubernetes

.PHONY: k8s-e2e
k8s-e2e: ## Kubernetes' own programs on sqlbrain, end to end; the first run builds them, which takes long
	cd integration/k8s && $(GO) test -count=1 -timeout $(or $(K8STIME),3h) -v ./...

.PHONY: k8s-cluster
k8s-cluster: ## A cluster of NODES and PODS (default 50 and 1000) at work on etcd, then on sqlbrain; tables in bin/k8s-cluster
	cd integration/k8s && SQLBRAIN_K8S_NODES=$(or $(NODES),50) SQLBRAIN_K8S_PODS=$(or $(PODS),1000) SQLBRAIN_K8S_STORES=$(STORES) \
	  SQLBRAIN_K8S_REPORT=$(CURDIR)/bin/k8s-cluster $(GO) test -count=1 -timeout 0 -v -run TestClusterAtWork ./atwork

.PHONY: long
long: ## Hours of it: a hundred crashes, 30 s outages, 100,000 objects, thousands of histories
	set -e; for m in $(MODULES); do (cd $$m && SQLBRAIN_LONG=1 $(GO) test -timeout 6h -v ./...); done

.PHONY: lint
lint: fmt-check vet staticcheck ## Format check, go vet and staticcheck, all modules

.PHONY: fmt-check
fmt-check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not gofmt'ed:"; echo "$$out"; exit 1; fi

.PHONY: vet
vet:
	$(GO) vet $(PACKAGES)
	set -e; for m in $(LINTED); do (cd $$m && $(GO) vet ./...); done

.PHONY: staticcheck
staticcheck:
	$(GO) tool staticcheck $(PACKAGES)
	$(GO) build -o bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	set -e; for m in $(LINTED); do (cd $$m && $(CURDIR)/bin/staticcheck ./...); done

.PHONY: fuzz
fuzz: ## Fuzz the codecs, the checks and what reads settings, FUZZTIME each (default 30s)
	@set -e; for file in $$(git ls-files '*_test.go' | grep -v '^integration/'); do \
	  for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9]+)\(f \*testing\.F\).*/\1/p' $$file); do \
	    echo "$$target in $$file"; \
	    $(GO) test -run xxx -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),30s) ./$$(dirname $$file); done; done

.PHONY: vuln
vuln: ## Known vulnerabilities in what the root module uses; asks vuln.go.dev
	$(GO) run golang.org/x/vuln/cmd/govulncheck@latest $(PACKAGES)

# Not looked for: integers that are converted (revisions are int64, raft's terms uint64), files that settings
# name, random numbers that spread retries, and errors that nobody can do anything about.
GOSEC := github.com/securego/gosec/v2/cmd/gosec@v2.22.0 -quiet -exclude=G104,G115,G304,G404 \
  -exclude-dir=integration -exclude-dir=sqlstore/enginetest -exclude-dir=server/tlsfiles/tlstest

.PHONY: gosec
gosec: ## Look for insecure code in the root module; downloads gosec
	$(GO) run $(GOSEC) ./...

.PHONY: bench
bench: ## Measure beside etcd and kine into docs/benchmarks: over an hour; QUICK=1 minutes, into bin/bench-quick; BENCH_ARGS go to it
	cd integration/bench && $(GO) run . run $(if $(QUICK),--quick --rounds 1 --out $(CURDIR)/bin/bench-quick) $(BENCH_ARGS)

.PHONY: bench-growth
bench-growth: ## How figures change with the data, into docs/benchmarks: hours; SIZES=10000x1,100000x10 (keys x versions), BENCH_ARGS
	cd integration/bench && $(GO) run . growth $(if $(SIZES),--sizes $(SIZES)) $(BENCH_ARGS)

.PHONY: gobench
gobench: ## Go benchmarks of the storage, watch and coding packages
	$(GO) test -run xxx -bench . -benchmem $(PACKAGES)

.PHONY: cover
cover: ## Test coverage of the root module, into coverage.html
	$(GO) test -coverprofile=coverage.out $(PACKAGES)
	$(GO) tool cover -html=coverage.out -o coverage.html

.PHONY: tidy-check
tidy-check: ## Fail if go.mod or go.sum is not tidy
	$(GO) mod tidy -e -diff

.PHONY: clean
clean: ## Remove what the targets above made; sqlbrain.data/ stays
	rm -rf bin coverage.out coverage.html
