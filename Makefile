# Everything a contributor runs. A fresh machine needs Python 3.11 or newer with venv, and make; the chat page and the
# TypeScript client need Node 20.19 or newer, and tests in a browser Chromium: their tests are skipped without.
#   make test PYTEST_ARGS="-x tests/unit"          another selection
#   make test PYTHON=python3.13 VENV=.venv-3.13    another interpreter

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?= -n auto --dist worksteal
LOCK_ARGS ?=
ARGS ?=

# An installed uv is used; without one, this version goes into .tools.
UV_VERSION ?= 0.13.7
PIP_ARGS := --quiet --disable-pip-version-check
UV := $(or $(shell command -v uv 2>/dev/null),.tools/bin/uv)

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SERVING := $(VENV)/.serving
EXTRAS := client cli postgresql server testing
COMPILE = $(UV) pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url $(LOCK_ARGS)

.DEFAULT_GOAL := help
.PHONY: help screenshots setup test lint format types layers page serve bench proof compat mutate simulate reference twins lock sbom audit clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' Makefile

setup: $(INSTALLED) ## Install the locked tools and this package into .venv

# Tests start many processes. Where no bytecode may be kept, each would compile all that it imports.
test: export PYTHONDONTWRITEBYTECODE :=
test: setup ## Run the tests (PYTEST_ARGS=)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: setup ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.language
	$(BIN)/hadolint Dockerfile
	$(BIN)/compose-lint --fail-on low compose.yaml

format: setup ## Format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup ## Check types
	$(BIN)/mypy

# No cache: it goes stale when a module appears.
layers: setup ## Check that imports point one way
	$(BIN)/lint-imports --no-cache --no-logo

page: ## Build the chat page, which needs Node 20.19 or newer
	@$(PYTHON) -m tools.page

# The page where Node is, and a line about it where it is not: the server runs without. Its build and the installation
# take turns waiting for the disk, so they run side by side.
serve: ## Install what serving needs, and run the server (ARGS=)
	@$(MAKE) --no-print-directory --jobs=2 servable
	@$(BIN)/turnledger serve $(ARGS)

.PHONY: servable optionalpage
servable: $(SERVING) optionalpage
optionalpage:
	@$(PYTHON) -m tools.page --if-possible

screenshots: setup ## Make the pictures of the page anew, for the documentation
	SCREENSHOTS=docs/images $(BIN)/python -m pytest -q -n0 tests/web/test_screenshots.py

bench: setup ## Run the benchmarks (ARGS=)
	$(BIN)/python -m bench $(ARGS)

proof: setup ## Run the long proofs (ARGS= names some; ARGS=--list shows all)
	$(BIN)/python -m tests.proof $(ARGS)

# Their packages, of the versions in tests/compat_real/packages, go into .compat.
compat: setup ## Run real clients and model servers, and write down what they do (ARGS= names some)
	UV=$(UV) $(BIN)/python -m tests.compat_real $(ARGS)

mutate: setup ## Change the engine in small ways, and see whether tests notice (ARGS=)
	$(BIN)/python -m tools.mutation $(ARGS)

simulate: setup ## Run the simulator (ARGS=)
	$(BIN)/python -m turnledger.testing.simulation $(ARGS)

reference: setup ## Write the reference pages anew, from the code (ARGS=--check only looks)
	$(BIN)/python -m tools.reference $(ARGS)

twins: setup ## Write the blocking client and ledger anew, from the awaiting ones
	$(BIN)/python -m tools.twins

lock: $(UV) ## Write the lock files anew (LOCK_ARGS=--upgrade for newer versions)
	$(COMPILE) --output-file requirements.lock
	$(COMPILE) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	for extra in $(EXTRAS); do $(COMPILE) --extra $$extra --constraint requirements-dev.lock \
		--output-file requirements-$$extra.lock || exit 1; done

sbom: setup ## Write a bill of materials, in CycloneDX, from the lock files (ARGS= another file)
	$(BIN)/python -m tools.sbom $(ARGS)

audit: setup ## Look for known vulnerabilities in what is locked, where the databases can be reached
	$(BIN)/python -m tools.audit

clean: ## Remove everything that was installed, built or cached
	rm -rf .venv .venv-* .tools .compat dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf src/turnledger/server/chat_page/dist web/node_modules clients/typescript/node_modules clients/typescript/dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml requirements.lock requirements-dev.lock | $(UV)
	test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements-dev.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	touch $(SERVING) $@

# Adds to what is there, which may be the tools of `make setup`. The build backend, which the server does not need, is
# installed only for the build, as locked.
$(SERVING): pyproject.toml requirements-server.lock | $(UV)
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	$(UV) pip install --python $(BIN)/python --require-hashes --requirements requirements-server.lock
	$(UV) pip install --python $(BIN)/python --no-deps --build-constraints requirements-dev.lock --editable .
	@touch $@

# A pip that is there is used: installing one takes four seconds.
.tools/bin/uv:
	@if $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		$(PYTHON) -m pip install $(PIP_ARGS) --upgrade --target .tools uv==$(UV_VERSION); \
	else \
		$(PYTHON) -m venv .tools && .tools/bin/python -m pip install $(PIP_ARGS) uv==$(UV_VERSION); \
	fi
