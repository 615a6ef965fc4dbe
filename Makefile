# `make help` lists the targets. Every target sets itself up: nothing has to be installed by hand but Python 3.11+.
PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q

# Many tests wait for real processes: more workers than two cores have keep the cores busy.
WORKERS ?= 4

.DEFAULT_GOAL := help

$(STAMP): requirements/dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Watch the operator work for a minute: no cluster needed (ARGS=--keep leaves it running)
	@$(BIN)/homelab-autoscaler demo $(ARGS)

.PHONY: setup
setup: $(STAMP) ## Create the virtual environment with the locked dependencies

.PHONY: test
test: $(STAMP) ## Run every test, in parallel
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: lint
lint: $(STAMP) ## ruff (format and rules), mypy strict, layer contracts
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy examples/mirror/mirror.py
	@$(BIN)/lint-imports

.PHONY: format
format: $(STAMP) ## Format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: bench
bench: $(STAMP) ## Measure what the README states
	@for script in test/bench/*.py; do echo "== $$script"; nice $(BIN)/python $$script || exit 1; done

.PHONY: faults
faults: $(STAMP) ## Break the manager at every write of every story, in every way (ARGS="--story boot --fault KILL_AFTER")
	@export PYTHONPATH=test/support; failed=0; \
	nice $(BIN)/python -m lab.campaign --virtual $(ARGS) || failed=1; \
	nice $(BIN)/python -m lab.campaign $(ARGS) || failed=1; \
	exit $$failed

.PHONY: conformance
conformance: $(STAMP) ## Run a black-box battery for API servers against the control plane (CONFORMANCE=its directory)
	@$(BIN)/python hack/run_conformance.py $(CONFORMANCE)

.PHONY: lock
lock: ## Write requirements/*.lock anew from pyproject.toml (needs uv)
	@uv pip compile pyproject.toml $(LOCK) -o requirements/runtime.lock
	@uv pip compile pyproject.toml $(LOCK) --all-extras --group dev -c requirements/runtime.lock -o requirements/dev.lock
	@uv pip compile --group build $(LOCK) -c requirements/dev.lock -o requirements/build.lock

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk 'BEGIN {FS = ":.*## "}; {printf "  \033[36m%-12s\033[0m %s\n", $$1, $$2}'
