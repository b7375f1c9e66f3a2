# The short way to the usual commands. Everything works without make, too.

GO ?= go
SIM_TIME ?= 10m

.PHONY: help build test race lint fuzz sim mutants demo bench bench-suite bench-peers interop-full clients-full ci clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/haengine
	$(GO) build -trimpath -o bin/haengine ./cmd/haengine

test: ## run all tests
	$(GO) test ./...

race: ## run the tests under the race detector, invariants on
	$(GO) test -race ./...

lint: ## gofmt, vet, golangci-lint, the house test
	.ci/run format vet lint house

fuzz: ## run every fuzz target for a short time
	.ci/run fuzz

sim: ## run simulations of fresh seeds for SIM_TIME (10m)
	$(GO) test ./internal/sim -count=1 -timeout 0 -v -run '^TestSoak$$' -for $(SIM_TIME)

mutants: ## break the program on purpose, and see that the simulation notices
	$(GO) test ./internal/mutants -count=1 -timeout 60m -v -run Found -all

demo: ## replicate, kill, recover and compare, on this machine
	$(GO) run ./cmd/haengine demo

bench: ## run the benchmarks at the top of the tree
	$(GO) test -run '^$$' -bench . -benchmem .

bench-suite: ## measure beside the machine's limits, within 20 minutes; writes docs/benchmarks.md and its charts
	bench/suite.sh

bench-peers: ## the same work on RocketMQ, NATS, Redis and Raft, 20 minutes; PEERS_FLAGS="--markdown docs/benchmarks.md" writes its tables there
	@cd bench/peers && $(GO) build -trimpath -o ../../bin/bench-peers .
	@bin/bench-peers $(PEERS_FLAGS)

interop-full: ## every case beside the real RocketMQ; writes the table of docs/interop.md
	$(GO) test ./interop -count=1 -timeout 60m -full -table ../docs/interop.md

clients-full: ## RocketMQ's clients at our nodes and at RocketMQ's; writes their table in docs/interop.md
	$(GO) test ./interop/clients -count=1 -timeout 20m -full -table ../../docs/interop.md

ci: ## everything that has to pass
	.ci/run

clean: ## remove what build leaves
	rm -rf bin
