# Every verb sets up its own virtual environment: a machine needs Python 3.11 or newer, pip, make and git.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help setup test test-slow lint check format wheel demo bench clean

help:  ## list the verbs
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

setup: $(READY)  ## the environment alone

# A process a core, each with one thread: threads of several processes only stand in each other's way.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

test: $(READY)  ## the tests: offline, on a CPU
	$(PYTEST)

test-slow: $(READY)  ## the exhaustive ones
	$(PYTEST) -m 'slow and not gpu'

lint: $(READY)  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

check: lint test test-slow  ## all that CI does

demo: $(READY)  ## index the demo pictures, search them, explain a match; writes demo-out/
	$(BIN)/python tools/demo.py demo-out

bench: $(READY)  ## measure and render docs/benchmarks.md; wants a quiet machine
	$(BIN)/python -m benchmarks transport
	$(BIN)/python -m benchmarks render

format: $(READY)  ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(READY)  ## build dist/*.whl
	$(BIN)/python -m build --wheel --no-isolation

clean:  ## remove what was built, the environment included
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
