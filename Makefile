# Everything a new user needs: `make run` and `make test`. Both make their own .venv first.
PYTHON ?= # which makes .venv; none: the fastest that is found
VENV ?= .venv
BIN := $(VENV)/bin
DATA ?= default.etcd
ARGS ?=
SEED ?= 1
SEEDS ?= 1
WORLD ?= # of make sim and make swarm: empty: the store; api: API servers on it; whole: everything
HOURS ?= 1
FUZZ_S ?= 60
NATIVE ?= # 0: without the native transport, whatever toolchains are there

.PHONY: run test long check schema bench sim swarm native fuzz fuzz-api proto surface wheel lock clean

# With a Rust toolchain the install builds the native transport; without, grpcio serves.
CRATE := setup.py packaging/crate.py $(wildcard kvstore/native/Cargo.* kvstore/native/src/*.rs kvstore/native/src/*/*.rs)
export KVSTORE_NATIVE := $(strip $(NATIVE))

$(VENV)/.runtime: requirements.lock pyproject.toml $(CRATE)
	@test -x $(BIN)/python || { python="$(strip $(PYTHON))"; \
	  test -n "$$python" || python=$$(packaging/fastest-python.sh) || exit 1; \
	  echo "$$python -m venv $(VENV)"; "$$python" -m venv $(VENV); }
	@echo "installing the locked packages into $(VENV)"
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@# Once here, where cargo's progress shows; the install below finds it built.
	@$(BIN)/python packaging/crate.py kvstore/transport/_native.abi3.so || true
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@$(BIN)/python -m compileall -q kvstore kvstack  # or the first start would
	@$(BIN)/python -c 'from kvstore.transport import native as n; n.is_available() or print("native transport not built (no working cargo): grpcio will serve")'
	touch $@

$(VENV)/.dev: requirements-dev.lock $(VENV)/.runtime
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $@

run: $(VENV)/.runtime  ## store on 127.0.0.1:2379 and Kubernetes API on 6443; flags: make run ARGS="--log-level debug"
	exec $(BIN)/kvstack up --data-dir $(DATA) $(ARGS)

test: $(VENV)/.dev check  ## all checks and tests
	$(BIN)/pytest -n 2 --dist loadgroup $(ARGS)

long: $(VENV)/.dev  ## the tests that `make test` leaves out
	$(BIN)/pytest -n 2 --dist loadgroup -m long $(ARGS)

check: $(VENV)/.dev  ## formatting, lint, types, import rules, generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m proto.generate --check
	$(BIN)/python -m kvstack.apiserver.schema.generate --check

schema: $(VENV)/.dev  ## the table of kinds from its text tables; with SOURCE=dir, first those from a release
	$(BIN)/python -m kvstack.apiserver.schema.generate $(if $(SOURCE),--from $(SOURCE))

proto: $(VENV)/.dev  ## generate kvstore/wire/gen from proto/
	$(BIN)/python -m proto.generate

bench: $(VENV)/.dev  ## side by side with real etcd; results go to bench/results
	$(BIN)/python -m bench $(ARGS)

sim: $(VENV)/.dev  ## simulated worlds from one seed on: make sim SEED=7 SEEDS=100
	$(BIN)/python -m tests.sim$(addprefix .,$(strip $(WORLD))) --seed $(SEED) --seeds $(SEEDS) $(ARGS)

swarm: $(VENV)/.dev  ## simulated worlds on all processors; failing seeds go to swarm-failures.txt: make swarm HOURS=8
	$(BIN)/python -m tests.sim.$(or $(strip $(WORLD)),swarm) --hours $(HOURS) $(ARGS)

native:  ## the native transport's own checks and tests (needs cargo with clippy and rustfmt)
	cd kvstore/native && cargo fmt --check
	cd kvstore/native && PYO3_PYTHON=$(abspath $(BIN)/python) cargo clippy --locked --release --all-targets -- -D warnings
	cd kvstore/native && PYO3_PYTHON=$(abspath $(BIN)/python) cargo test --locked --release --no-default-features

fuzz-api: $(VENV)/.dev  ## any bytes at the API server's readers, so many seconds each: make fuzz-api FUZZ_S=600 ARGS="cel yaml"
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes -r tests/fuzz/requirements.txt
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_S) $(ARGS)

fuzz:  ## any bytes at the native transport's framing: make fuzz FUZZ_S=600 (needs cargo-fuzz, a nightly toolchain)
	@cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: cargo install cargo-fuzz"; exit 1; }
	@rustup toolchain list 2>/dev/null | grep -q nightly || { echo "a nightly toolchain is missing: rustup toolchain install nightly"; exit 1; }
	cd kvstore/native && for target in deframe watch connection; do \
	  mkdir -p fuzz/corpus/$$target && \
	  PYO3_PYTHON=$(abspath $(BIN)/python) cargo +nightly fuzz run $$target fuzz/corpus/$$target fuzz/seeds/connection -- \
	    -max_total_time=$(FUZZ_S) -max_len=4096 || exit 1; done

surface: $(VENV)/.dev  ## docs/surface.md, from the results of the last `make test`
	$(BIN)/python -m tests.surface

wheel:  ## an installable wheel in dist/, with the native transport inside (needs cargo)
	test -x $(BIN)/python || $(MAKE) $(VENV)/.runtime
	KVSTORE_NATIVE=1 $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@ls dist/*.whl

lock:  ## renew the lock files from pyproject.toml (needs uv)
	uv pip compile --universal --quiet --generate-hashes --python-version 3.11 pyproject.toml -o requirements.lock
	uv pip compile --universal --quiet --generate-hashes --python-version 3.11 --extra dev pyproject.toml -o requirements-dev.lock

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
