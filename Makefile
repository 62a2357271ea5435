# Everything a new user needs: `make run` and `make test`. Both make their own .venv first.
PYTHON ?= # which makes .venv; none: the fastest that is found
VENV ?= .venv
BIN := $(VENV)/bin
DATA ?= default.etcd
ARGS ?=
SEED ?= 1
SEEDS ?= 1
WORKERS ?= 5 # of make test: tests wait more than they compute
WORLD ?= # of make sim and make swarm: empty: the store; api: API servers on it; whole: everything
HOURS ?= 1
FUZZ_S ?= 60
FUZZ_TARGETS ?= deframe watch targets connection web decode client yaml
E2E ?= # of make conformance: the program e2e.test of a release of Kubernetes
IMAGES ?= # of make conformance: a directory with the images that its tests run
WHEEL_TARGETS ?= x86_64-unknown-linux-gnu.2.28 x86_64-unknown-linux-musl # of make wheels, as of cargo-zigbuild
NATIVE ?= # 0: without the native transport, whatever toolchains are there

.PHONY: run test test-pythons long conformance check schema bench sim swarm swarms native fuzz fuzz-api proto surface wheel wheels image lock clean

# With a Rust toolchain the install builds the native transport; without, grpcio serves.
CRATE := setup.py packaging/crate.py $(wildcard kvstore/native/Cargo.*) $(shell find kvstore/native/src -name "*.rs")
TEST_FILES := $(shell find tests bench/micro -name "*.py")
export KVSTORE_NATIVE := $(strip $(NATIVE))
# Where it is set, every process that tests start would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# The packages, without the native transport: enough for `make check`.
$(VENV)/.packages: requirements.lock pyproject.toml setup.py
	@test -x $(BIN)/python || { python="$(strip $(PYTHON))"; \
	  test -n "$$python" || python=$$(packaging/fastest-python.sh) || exit 1; \
	  echo "$$python -m venv $(VENV)"; "$$python" -m venv $(VENV); }
	@echo "installing the locked packages into $(VENV)"
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	KVSTORE_NATIVE=0 $(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@# Or the first start would. Links are not followed: what is below kvstack by one is named.
	@$(BIN)/python -m compileall -q kvstore kvstack agents apiserver
	touch $@

$(VENV)/.runtime: $(VENV)/.packages $(CRATE)
	@$(BIN)/python packaging/crate.py kvstack/component/_native.abi3.so || true
	@$(BIN)/python -c 'from kvstore.transport import native as n; n.is_available() or print("native transport not built (no working cargo): grpcio will serve")'
	touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.packages
	@# Without compiling: of thousands of modules the tests import few.
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements-dev.lock
	touch $@

run: $(VENV)/.runtime  ## a cluster: Kubernetes API on 127.0.0.1:6443, the store on a unix socket; flags: make run ARGS="--log-level debug"
	exec $(BIN)/kvstack up --data-dir $(DATA) $(ARGS)

test: $(VENV)/.packages  ## all checks and tests; with cargo those of the crate, too, unless NATIVE=0
	@echo "the checks of Python and the crate's build and tests run side by side; their output follows"
	@$(MAKE) --no-print-directory -j 2 --output-sync=recurse check crate-tests
	@$(BIN)/python -m compileall -q kvstore kvstack agents apiserver  # what changed since
	@$(MAKE) --no-print-directory -j 2 $(VENV)/.rewritten-apiserver $(VENV)/.rewritten-others
	$(BIN)/pytest -n $(WORKERS) --dist loadgroup $(ARGS)

# pytest rewrites the assertions of files that changed, for seconds, and keeps what it wrote. Done
# here once, or every worker does it. What is wrong with a file the run itself says.
$(VENV)/.rewritten-apiserver $(VENV)/.rewritten-others: $(TEST_FILES) $(VENV)/.dev
	@$(BIN)/pytest --collect-only -q --no-header >/dev/null 2>&1 \
	  $(if $(filter %-apiserver,$@),tests/apiserver,--ignore tests/apiserver) || true
	@touch $@

.PHONY: crate-tests
crate-tests: $(VENV)/.runtime
	@if test "$(strip $(NATIVE))" = 0 || ! cargo clippy --version >/dev/null 2>&1 || ! cargo fmt --version >/dev/null 2>&1; then \
	  echo "the crate's own tests are left out: NATIVE=0, or no cargo with clippy and rustfmt"; \
	else $(MAKE) --no-print-directory native; fi

test-pythons: $(VENV)/.dev $(VENV)/.runtime  ## the unit tests on the fastest and the newest Python found, each in a .venv of its own
	@for python in $$({ packaging/fastest-python.sh; packaging/fastest-python.sh newest; } | sort -u); do \
	  venv=$(VENV)-$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') && \
	  $(MAKE) --no-print-directory VENV=$$venv PYTHON=$$python $$venv/.dev $$venv/.runtime && \
	  $$venv/bin/pytest -q -n 2 tests/unit tests/component tests/apimachinery tests/cel $(ARGS) || exit 1; done

long: $(VENV)/.dev $(VENV)/.runtime  ## the tests that `make test` leaves out
	$(BIN)/pytest -n 2 --dist loadgroup -m long $(ARGS)

conformance: $(VENV)/.dev $(VENV)/.runtime  ## Kubernetes' conformance tests: make conformance E2E=e2e.test IMAGES=directory
	$(BIN)/python -m tests.conformance.kubernetes "$(E2E)" $(if $(IMAGES),"$(IMAGES)") $(ARGS)

check: $(VENV)/.dev  ## formatting, lint, types, import rules, generated code
	@for name in agents apiserver; do test "$$(readlink kvstack/$$name)" = ../$$name || \
	  { echo "kvstack/$$name has to be a symbolic link to ../$$name"; exit 1; }; done
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m proto.generate --check
	$(BIN)/python -m kvstack.apimachinery.schema.generate --check

schema: $(VENV)/.dev  ## the table of kinds from its text tables; with SOURCE=dir, first those from a release
	$(BIN)/python -m kvstack.apimachinery.schema.generate $(if $(SOURCE),--from $(SOURCE))

proto: $(VENV)/.dev  ## generate kvstore/wire/gen from proto/
	$(BIN)/python -m proto.generate

bench: $(VENV)/.dev $(VENV)/.runtime  ## side by side with real etcd; results go to bench/results
	$(BIN)/python -m bench $(ARGS)

sim: $(VENV)/.dev $(VENV)/.runtime  ## simulated worlds from one seed on: make sim SEED=7 SEEDS=100
	$(BIN)/python -m tests.sim$(addprefix .,$(strip $(WORLD))) --seed $(SEED) --seeds $(SEEDS) $(ARGS)

swarm: $(VENV)/.dev $(VENV)/.runtime  ## simulated worlds on all processors; failing seeds go to swarm-failures.txt: make swarm HOURS=8
	$(BIN)/python -m tests.sim.$(or $(strip $(WORLD)),swarm) --hours $(HOURS) $(ARGS)

swarms: $(VENV)/.dev $(VENV)/.runtime  ## swarms of all worlds, so long each: make swarms HOURS=0.25
	@failed=0; for world in "" api whole; do \
	  $(MAKE) --no-print-directory swarm WORLD=$$world || failed=1; done; exit $$failed

native:  ## the native transport's own checks and tests (needs cargo with clippy and rustfmt)
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || \
	  { echo "rustfmt and clippy are missing: rustup component add rustfmt clippy"; exit 1; }
	cd kvstore/native && cargo fmt --check
	cd kvstore/native && PYO3_PYTHON=$(abspath $(BIN)/python) cargo clippy --locked --release --all-targets -- -D warnings
	@# --lib: without tests of documentation, of which there are none, the library is built once less.
	cd kvstore/native && PYO3_PYTHON=$(abspath $(BIN)/python) cargo test --locked --release --no-default-features --lib

fuzz-api: $(VENV)/.dev $(VENV)/.runtime  ## any bytes at the API server's readers, so many seconds each: make fuzz-api FUZZ_S=600 ARGS="cel yaml"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes -r tests/fuzz/requirements.txt
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_S) $(ARGS)

fuzz:  ## any bytes at the native transport's framing and its client: make fuzz FUZZ_S=600 (needs cargo-fuzz, a nightly toolchain)
	@cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: cargo install cargo-fuzz"; exit 1; }
	@rustup toolchain list 2>/dev/null | grep -q nightly || { echo "a nightly toolchain is missing: rustup toolchain install nightly"; exit 1; }
	cd kvstore/native && for target in $(FUZZ_TARGETS); do \
	  seeds=fuzz/seeds/connection; case $$target in decode|client) seeds=fuzz/seeds/client;; esac; \
	  mkdir -p fuzz/corpus/$$target && \
	  PYO3_PYTHON=$(abspath $(BIN)/python) cargo +nightly fuzz run $$target fuzz/corpus/$$target $$seeds -- \
	    -max_total_time=$(FUZZ_S) -max_len=4096 || exit 1; done

surface: $(VENV)/.dev  ## docs/surface.md, from the results of the last `make test`
	$(BIN)/python -m tests.surface

wheel:  ## an installable wheel in dist/, with the native transport inside (needs cargo)
	test -x $(BIN)/python || $(MAKE) $(VENV)/.runtime
	KVSTORE_NATIVE=1 $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/*.whl

wheels: $(VENV)/.packages  ## wheels in dist/ for WHEEL_TARGETS, and one without the native transport (needs cargo, rustup)
	test -x $(VENV)-wheels/bin/python || $(BIN)/python -m venv $(VENV)-wheels
	$(VENV)-wheels/bin/pip install --quiet --disable-pip-version-check --require-hashes -r packaging/wheels.lock
	rm -rf build dist/wheels
	for target in $(WHEEL_TARGETS); do rustup target add "$$(echo $$target | sed 's/\.[0-9.]*$$//')" || exit 1; done
	@# The first builds for all of them at once, the others take what is there.
	for target in $(WHEEL_TARGETS); do rm -rf build && \
	  PATH="$(abspath $(VENV))-wheels/bin:$$PATH" KVSTORE_NATIVE=1 KVSTORE_CRATE_TARGET="$$target $(WHEEL_TARGETS)" \
	  $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist/wheels/$$target . && \
	  case $$target in \
	  *-musl) $(VENV)-wheels/bin/python packaging/musl_wheel.py dist/wheels/$$target/*.whl dist;; \
	  *) PATH="$(abspath $(VENV))-wheels/bin:$$PATH" auditwheel repair --wheel-dir dist dist/wheels/$$target/*.whl;; \
	  esac || exit 1; done
	rm -rf build
	KVSTORE_NATIVE=0 $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/*.whl

image:  ## the image kvstack, with its version as a label (needs docker)
	docker build -t kvstack --build-arg VERSION="$$(sed -n 's/^VERSION: Final = "\(.*\)"$$/\1/p' kvstack/component/version.py)" .

lock:  ## renew the lock files from pyproject.toml (needs uv: pip install uv)
	uv pip compile --universal --quiet --generate-hashes --python-version 3.11 --extra all pyproject.toml -o requirements.lock
	uv pip compile --universal --quiet --generate-hashes --python-version 3.11 --extra dev pyproject.toml -o requirements-dev.lock
	uv pip compile --universal --quiet --generate-hashes --python-version 3.11 packaging/wheels.in -o packaging/wheels.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
