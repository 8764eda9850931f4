# sqlbrain. `make help` lists the targets. .ci/run calls `make test` and `make test-all`, gosec, bench-allocs and docs.

GO       ?= go
BIN      := bin/sqlbrain
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# Without the symbol table and DWARF, which no traceback or profile needs.
LDFLAGS  := -s -w -X main.version=$(VERSION)
PACKAGES := ./...

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
run: ## Serve etcd clients on 127.0.0.1:2379 over a SQLite file in sqlbrain.data/
	@echo "Building $(BIN). The first time downloads modules and compiles for some minutes."
	@(while sleep 5; do echo "Still building, at $$(date +%T)."; done) & ticker=$$!; \
	  $(MAKE) --no-print-directory build; status=$$?; kill $$ticker; exit $$status
	@echo "Starting it. Try in another terminal:  $(BIN) ctl put greeting hello;  $(BIN) ctl get greeting"
	$(BIN) serve --log-format text

# Packages that are quick to compile, so that the first results come soon.
FIRST := ./coder ./tso ./migrations ./sqlstore/retry ./server/loglimit ./server/auth ./server/mvcc ./server/mvcc/history

.PHONY: test
test: ## Unit tests and the storage suite: a few minutes, most of it compiling the first time
	@echo "Unit tests and the storage suite, without the race detector: on two processors about 4 minutes the first time,"
	@echo "2 later. Skipped, each with its reason in go test -v: what needs a MySQL, MariaDB or TiDB that is not found here."
	@echo "The rest is make test-all: the race detector, the built program beside etcd, faults, Kubernetes."
	CGO_ENABLED=0 $(GO) test -timeout 30m $(FIRST)
	CGO_ENABLED=0 $(GO) test -timeout 30m $(PACKAGES)

.PHONY: test-all
test-all: ## All else that CI runs: lint, the unit tests with the race detector, integration; half an hour
	$(MAKE) -j3 integration lint-and-race search

.PHONY: lint-and-race
lint-and-race: lint
	$(MAKE) race

.PHONY: race
race:
	@$(if $(RACE),,echo "no C compiler: the tests run without the race detector")
	$(GO) test $(RACE) -timeout 30m $(PACKAGES)

# What the tests of integration run: built once, and not by each package.
.PHONY: programs
programs:
	$(GO) build -o bin/programs/sqlbrain ./cmd/sqlbrain
	cd integration && $(GO) build -o ../bin/programs/etcdctl go.etcd.io/etcd/etcdctl/v3
	cd integration && $(GO) build -o ../bin/programs/etcdutl go.etcd.io/etcd/etcdutl/v3
	cd integration && $(GO) build -o ../bin/programs/etcd go.etcd.io/etcd/server/v3
	cd integration/programs/versitygw && $(GO) build -o ../../../bin/programs/versitygw github.com/versity/versitygw/cmd/versitygw
	$(if $(CC_FOUND),cd integration/programs/kine && CGO_ENABLED=1 $(GO) build -o ../../../bin/programs/kine github.com/k3s-io/kine)

# Not from Go's cache of results: it knows a test's packages, not the programs that it builds and runs.
# More packages at a time than there are cores, usually: the tests wait more than they compute.
PARALLEL ?= 3

# CI sets AGAIN to a program that runs some tests once more: .ci/again.
.PHONY: integration
integration: programs ## The built binary beside etcd: etcdctl, histories, crashes, outages, suites from outside
	cd integration && SQLBRAIN_INTEGRATION_PROGRAMS=$(CURDIR)/bin/programs $(AGAIN) $(GO) test -count=1 -p $(PARALLEL) -timeout 60m \
	  $(INTEGRATION_ARGS) $$($(GO) list ./... | grep -v /simulation/model$$)

# The result depends on nothing but the files of the package, so that Go's cache of results may have it.
.PHONY: search
search:
	cd integration && $(GO) test -timeout 60m ./simulation/model

DB ?= tidb
NODES_tidb   := n1 n2 n3
NODES_mysql  := mysql-n1 mysql-n2 mysql-n3
NODES_sqlite := sqlite-n1

.PHONY: up
up: ## Start docker-compose.yml over DB=tidb (default), mysql or sqlite, MONITORING=1 with Grafana; wait until it is ready, and say what to try
	@test -n '$(NODES_$(DB))' || { echo "DB is tidb, mysql or sqlite"; exit 2; }
	docker compose --profile $(DB) $(if $(MONITORING),--profile monitoring) up --build --detach --wait $(NODES_$(DB)) $(if $(MONITORING),grafana)
	@echo 'Ready. Try:'
	@echo "  export ETCDCTL_ENDPOINTS=127.0.0.1:$${SQLBRAIN_N1_PORT:-2379}$(if $(filter sqlite,$(DB)),,$(comma)127.0.0.1:$${SQLBRAIN_N2_PORT:-22379}$(comma)127.0.0.1:$${SQLBRAIN_N3_PORT:-32379})"
	@echo '  etcdctl put greeting hello;  etcdctl get greeting;  etcdctl endpoint status --cluster --write-out table'
	@echo '  docker compose logs --follow $(firstword $(NODES_$(DB)))'
	@$(if $(filter sqlite,$(DB)),,echo '  docker compose kill $(firstword $(NODES_$(DB)))        # the others continue')
	@$(if $(MONITORING),echo '  the dashboard: http://127.0.0.1:3000    alerts: http://127.0.0.1:9090/alerts')
	@echo 'make down removes it, with the data.'
comma := ,

.PHONY: down
down: ## Remove what make up or docker compose up started, with the data
	docker compose --profile '*' down --volumes

.PHONY: test-tidb
test-tidb: ## Unit tests, storage suite and integration on the TiDB that SQLBRAIN_TEST_TIDB_URL names, tidb://user:password@host:4000/
	@test -n "$$SQLBRAIN_TEST_TIDB_URL$$SQLBRAIN_TEST_TIDB_SERVER" || { echo "set SQLBRAIN_TEST_TIDB_URL=tidb://user:password@host:4000/, whose user may create databases, or SQLBRAIN_TEST_TIDB_SERVER=tidb-server"; exit 2; }
	$(GO) test -count=1 -timeout 60m $(PACKAGES)
	cd integration && $(GO) test -count=1 -timeout 60m ./bench ./chaos/cluster ./chaos/faults ./chaos/replicated ./chaos/robustness/... \
	  ./compat ./compat/clients ./compat/etcdctl ./compat/program ./compat/snapshot ./internal/... ./kubernetes

.PHONY: model
model: ## Check the model of the protocol with Spin, that it needs each safeguard, and that it takes the steps of SEEDS simulated runs
	cd integration && SQLBRAIN_REQUIRE_ENGINES=1 $(GO) test -count=1 -timeout 60m -v ./simulation/model
	cd integration && SQLBRAIN_REQUIRE_ENGINES=1 $(GO) test -count=1 -timeout 0 -v -run TestStepsAreThoseOfTheModel ./simulation $(if $(SEEDS),-seeds=$(SEEDS))

.PHONY: compatibility
compatibility: ## Write docs/compatibility.md from the results of integration/compat
	cd integration && $(GO) test -count=1 -timeout 30m ./compat -write-page

.PHONY: robustness
robustness: ## Three nodes while nodes, network and database fail, for TIME (default 10m): linearizable, watches exact
	cd integration && $(GO) test -count=1 -timeout 0 -v -run TestLinearizable ./chaos/robustness -time=$(or $(TIME),10m)

.PHONY: simulate
simulate: ## Three nodes in simulated time: SEEDS of them (default 1000) from FIRST on, or one SEED, COUNT times; traces into the directory TRACE
	cd integration && $(GO) test -count=$(or $(COUNT),1) -timeout 0 $(if $(SEED),-v) -run '^TestSeeds$$' ./simulation \
	  -seed=$(or $(SEED),$(FIRST),1) -seeds=$(if $(SEED),1,$(or $(SEEDS),1000)) $(if $(TRACE),-traces=$(abspath $(TRACE)))

.PHONY: cluster
cluster: build ## Three nodes on this machine over a MariaDB or MySQL of their own, until Ctrl-C
	cd integration && SQLBRAIN_INTEGRATION_PROGRAMS=$(CURDIR)/bin $(GO) run ./cmd/cluster

# SUITE=storage: kube-apiserver's storage tests on every engine and through a follower. SUITE=e2e: Kubernetes' own programs, end to end, which the first run builds; K8STIME bounds it.
.PHONY: kubernetes
kubernetes: ## Kubernetes on sqlbrain, hours: SUITE=storage (default) or e2e
	cd integration && $(KUBERNETES_$(or $(SUITE),storage))
KUBERNETES_storage = SQLBRAIN_LONG=1 SQLBRAIN_REQUIRE_ENGINES=1 \
  $(GO) test -count=1 -timeout 4h -v -run TestAPIServerStorage ./kubernetes
KUBERNETES_e2e = $(GO) test -count=1 -timeout $(or $(K8STIME),3h) -v ./kubernetes/e2e/... -k8s

.PHONY: long
long: ## Hours of it: a hundred crashes, 30 s outages, 100,000 objects, thousands of histories
	cd integration && SQLBRAIN_LONG=1 $(GO) test -timeout 6h -v ./...

.PHONY: lint
lint: fmt-check tidy-check deps-check vet staticcheck revive errorlint unparam ## Formats, go.mod, linked packages, go vet, staticcheck, revive, errorlint and unparam

.PHONY: fmt-check
fmt-check:
	@out=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$out" ]; then echo "not gofmt'ed:"; echo "$$out"; exit 1; fi

# How many packages of other projects and of the standard library the binary may link.
MAX_DEPS := 596

# deps-check fails if the binary links packages of Kubernetes, or more than MAX_DEPS of others.
.PHONY: deps-check
deps-check:
	@deps=$$(CGO_ENABLED=0 $(GO) list -deps ./cmd/sqlbrain | grep -v '^github.com/sqlbrain/'); \
	  if echo "$$deps" | grep k8s.io; then echo "these packages of Kubernetes are for tests only"; exit 1; fi; \
	  n=$$(echo "$$deps" | wc -l); [ "$$n" -le $(MAX_DEPS) ] || { echo "the binary links $$n packages of others, more than $(MAX_DEPS)"; exit 1; }

.PHONY: vet
vet:
	$(GO) vet $(PACKAGES)
	cd integration && $(GO) vet ./...

.PHONY: staticcheck
staticcheck:
	$(GO) build -o bin/staticcheck honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck $(PACKAGES)
	cd integration && ../bin/staticcheck ./...

REVIVE := github.com/mgechev/revive@v1.17.0

.PHONY: revive
revive:
	$(GO) run $(REVIVE) -config revive.toml -set_exit_status ./...

# errorlint finds errors that are compared, or asserted, without regard to those that wrap them.
ERRORLINT := codeberg.org/polyfloyd/go-errorlint@v1.9.1

.PHONY: errorlint
errorlint:
	$(GO) run $(ERRORLINT) $(PACKAGES)

# unparam finds parameters and results that no caller needs.
UNPARAM := mvdan.cc/unparam@v0.0.0-20260823230713-2fa3d841b0c8

.PHONY: unparam
unparam:
	$(GO) run $(UNPARAM) $(PACKAGES)

.PHONY: generate
generate: ## Write the Go code of .proto files; a test of integration/cmd/protogo fails if it is not up to date
	$(GO) generate ./...

.PHONY: fuzz
fuzz: ## Fuzz the codecs, the checks, requests and what reads settings, FUZZTIME each (default 30s)
	@set -e; for file in $$(git ls-files '*_test.go' | grep -v '^integration/'); do \
	  for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9]+)\(f \*testing\.F\).*/\1/p' $$file); do \
	    echo "$$target in $$file"; \
	    $(GO) test -run xxx -fuzz "^$$target\$$" -fuzzminimizetime 5s -fuzztime $(or $(FUZZTIME),30s) ./$$(dirname $$file); done; done

# vuln looks for known vulnerabilities in what the root module uses: it asks vuln.go.dev.
.PHONY: vuln
vuln:
	$(GO) run golang.org/x/vuln/cmd/govulncheck@latest $(PACKAGES)

# gosec looks for insecure code in the root module. Not looked for: integers that are converted (revisions are int64, raft's terms uint64), files that settings
# name, random numbers that spread retries, and errors that nobody can do anything about.
GOSEC := github.com/securego/gosec/v2/cmd/gosec@v2.22.0 -quiet -exclude=G104,G115,G304,G404 -exclude-generated \
  -exclude-dir=integration -exclude-dir=sqlstore/enginetest -exclude-dir=server/tlsfiles/tlstest

.PHONY: gosec
gosec:
	$(GO) run $(GOSEC) ./...

# What `make bench` measures, WHAT=
#   results     beside etcd and kine: over an hour; QUICK=1 minutes, into bin/bench-quick
#   scoreboard  objects that come and go, beside etcd and kine: half an hour
#   interference  what background work costs other clients, beside etcd
#   nodes       a Kubernetes cluster of many nodes, beside etcd: five minutes
#   zones       three members in three zones, beside etcd, and failovers: nine minutes, as root
#   report      nothing: the pages are written again
.PHONY: bench
bench: ## Measure into docs/benchmarks: WHAT=results (default), scoreboard, interference, nodes, zones or report; BENCH_ARGS go to it
	cd integration/bench && $(BENCH_$(or $(WHAT),results))
BENCH_results = $(GO) run . results $(if $(QUICK),--quick --rounds 1 --out $(CURDIR)/bin/bench-quick) $(BENCH_ARGS) \
  $(if $(QUICK),,&& $(BENCH_report))
BENCH_scoreboard = $(GO) run . scoreboard $(BENCH_ARGS)
BENCH_interference = $(GO) run . interference $(BENCH_ARGS)
BENCH_nodes = $(GO) run . nodes $(BENCH_ARGS)
BENCH_zones = $(GO) test -count=1 -timeout 30m -v ./zones -write-page
BENCH_report = $(GO) run . report

# What a request allocates depends on the code and on Go's version, and not on the machine or its load.
ALLOCS := docs/benchmarks/allocs.txt

.PHONY: measure-allocs
measure-allocs:
	@mkdir -p bin
	@$(GO) test -run '^$$' -bench '^BenchmarkRequest$$' -benchtime 300x -count 3 -cpu 2 ./server >bin/allocs.out || { cat bin/allocs.out; exit 1; }
	@grep ^Benchmark bin/allocs.out >bin/allocs.txt

.PHONY: bench-allocs
bench-allocs: measure-allocs ## Fail if a request allocates more than a tenth more than docs/benchmarks/allocs.txt says; ACCEPT=1 writes that
	@$(if $(ACCEPT),cp bin/allocs.txt $(ALLOCS),.ci/allocs $(ALLOCS) bin/allocs.txt)

.PHONY: tidy-check
tidy-check:
	$(GO) mod tidy -e -diff

ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GORELEASER := $(shell command -v goreleaser)

.PHONY: release-check
release-check: ## Check workflows, packages, chart and docker-compose.yml; with a goreleaser in PATH, build a release into dist/. docs/releasing.md
	$(GO) run $(ACTIONLINT)
	cd integration && $(GO) test -count=1 -run 'Release|Workflows|Chart|Unit|Images' ./kubernetes/deploy && $(GO) test -count=1 -run 'Config|Migrate|Every|Make' ./kubernetes/compose
ifneq ($(GORELEASER),)
	goreleaser check
	goreleaser release --snapshot --clean --skip=sign,sbom
else
	@echo "no goreleaser in PATH: .goreleaser.yaml was read by a test, nothing was built from it"
endif

.PHONY: reference
reference: ## Write docs/reference from the program: commands, settings, metrics, errors, paths; tests fail if it is not up to date
	SQLBRAIN_REFERENCE=write $(GO) test -count=1 -run 'Page$$' ./cmd/sqlbrain ./server/etcd
	cd integration && SQLBRAIN_REFERENCE=write $(GO) test -count=1 -run 'TestMetricsPage' ./kubernetes/deploy

.PHONY: docs
docs: docs/node_modules/.package-lock.json ## Build the site into bin/docs and check its links, or SERVE=1 it at http://127.0.0.1:5173; needs Node 20, npm
	cd docs && VERSION='$(VERSION)' npm run --silent $(if $(SERVE),serve,build)

%/node_modules/.package-lock.json: %/package-lock.json
	cd $* && npm ci --prefer-offline --no-progress

# axe installs axe-core, with which integration/compat/console tests that the console is accessible.
.PHONY: axe
axe: integration/compat/console/axe/node_modules/.package-lock.json

.PHONY: clean
clean: ## Remove what the targets above made; sqlbrain.data/ stays
	rm -rf bin dist docs/node_modules integration/compat/console/axe/node_modules
