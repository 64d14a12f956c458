# What is run often. PYTHON names the environment: make check PYTHON=/path/to/python
PYTHON ?= .venv/bin/python
BIN = $(dir $(PYTHON))

.PHONY: help install check test stores soak docs bench ci

help:
	@echo "install  an environment in .venv with everything"
	@echo "check    ruff, mypy, pyright, layers, and the mistakes that the checkers must find"
	@echo "test     all tests but the long ones, with one store each where they're built upon stores"
	@echo "stores   those with the other stores"
	@echo "soak     the long ones"
	@echo "docs     the documentation into site/"
	@echo "bench    the benchmarks"
	@echo "ci       what CI does, from nothing"

install:
	python3 -m venv .venv
	.venv/bin/pip install -e '.[dev,docs,all]'

check:
	$(BIN)ruff check .
	$(BIN)ruff format --check .
	$(BIN)mypy
	$(BIN)pyright --pythonpath $(PYTHON)
	$(PYTHON) tests/typing/check_mistakes.py
	$(BIN)lint-imports

test:
	$(PYTHON) -m pytest -n 4 --dist=loadfile

stores:
	$(PYTHON) -m pytest -m "other_store and not soak" -n 4 --dist=loadfile

soak:
	$(PYTHON) -m pytest -m soak --timeout=1800 -p no:xdist

docs:
	NO_MKDOCS_2_WARNING=1 $(BIN)mkdocs build --strict

bench:
	$(PYTHON) -m benchmarks.drain
	$(PYTHON) -m benchmarks.latency
	$(PYTHON) -m benchmarks.idle

ci:
	.ci/run
