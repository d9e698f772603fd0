# Two targets are all that most people need: demo and test.

GO       ?= go
BIN      := bin/autotune
LINT     := bin/golangci-lint
LINT_VER := v2.15.0
# The committed BPF objects were made by this compiler; another major version
# gives other bytes for the same source.
CLANG_MAJOR := 14

.PHONY: all build demo test unit race live lint generate check-generated bench bench-probe fuzz clean

all: build

build: $(BIN)

.PHONY: $(BIN)
$(BIN):
	CGO_ENABLED=0 $(GO) build -trimpath -o $@ ./cmd/autotune

# Builds, then tunes a real NAPI instance under real load and shows the result.
demo: build
	./$(BIN) experiment demo -o demo-report

# Everything that CI checks: linting, generated code, unit tests under the race
# detector, and the live tests (root, Linux 6.13 or newer).
test: lint check-generated race unit

# Live tests of what this machine does not have are skipped, and named at the end.
SKIPPED := $(CURDIR)/bin/skipped-tests

unit:
	@mkdir -p bin && rm -f $(SKIPPED)
	TEST_SKIPS=$(SKIPPED) $(GO) test -count=1 -p 1 -timeout 15m ./...
	@if [ -s $(SKIPPED) ]; then echo "not tried on this machine:"; cat $(SKIPPED); fi

# Simulated closed loops run in one goroutine and take ten times as long here.
race:
	$(GO) test -count=1 -race -skip 'TestPolicies|TestGreybox' ./model ./model/bayes ./model/gp ./model/policy ./model/readiness ./tuner/... ./actuate/...
	$(GO) test -count=1 -race -run 'OnAnyNumberOfCores|DependOnWorkers|Apply' ./model/sim

lint: $(LINT)
	@unformatted="$$(gofmt -l $$(git ls-files '*.go'))"; \
	if [ -n "$$unformatted" ]; then echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	./$(LINT) run ./...

$(LINT):
	GOBIN=$(CURDIR)/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VER)

# Needs clang, llvm-strip and the libbpf headers; a plain build does not.
generate:
	$(GO) generate ./bpf

# The hashes of the source beside those of the objects tell on every machine; the
# right compiler also shows that the objects are what it makes of the source.
check-generated:
	$(GO) test -count=1 -run '^TestCommittedObjectsAreOfThisSource$$' ./bpf
	@if [ "$$(clang -dumpversion 2>/dev/null | cut -d. -f1)" != "$(CLANG_MAJOR)" ]; then \
		echo "check-generated: no clang $(CLANG_MAJOR) here, so only hashes were compared, not what it generates"; \
	else \
		before="$$(cat bpf/*_bpf*.o bpf/*_bpf*.go | sha256sum)"; \
		$(GO) generate ./bpf || exit 1; \
		after="$$(cat bpf/*_bpf*.o bpf/*_bpf*.go | sha256sum)"; \
		[ "$$before" = "$$after" ] || { echo "check-generated: bpf/ is not what its source generates; run make generate and commit"; exit 1; }; \
	fi

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...

# Runs each fuzz target for FUZZ_SECONDS; make test runs their seeds only. Making
# one input smaller would else take a minute by itself.
FUZZ_SECONDS ?= 60
FUZZ_PACKAGES ?= $(sort $(dir $(shell git grep -l '^func Fuzz' -- '*_test.go')))

fuzz:
	@for dir in $(FUZZ_PACKAGES); do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$dir*_test.go); do \
			echo "$$dir $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZ_SECONDS)s -fuzzminimizetime 2s ./$$dir || exit 1; \
		done; \
	done

# What each probe costs, as Markdown and JSON; root, Linux 6.13 or newer, and
# bpftrace for the comparison.
bench-probe:
	$(GO) test -run '^$$' -bench '^BenchmarkProbeCost$$' -benchtime 1x -timeout 5m ./probe/

clean:
	rm -rf bin
