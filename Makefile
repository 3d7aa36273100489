PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS := -n auto --maxprocesses 4 --dist loadfile

.PHONY: help demo test test-all lint docs bench clean
.DEFAULT_GOAL := help

help:  ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Installing is repeated only when what is to be installed has changed.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "creating $(VENV) (once)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing cala and its tools into $(VENV) (once, a few minutes)"
	@$(BIN)/python -m pip install --quiet --retries 10 --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP)  ## CIFAR-100: nearest mean, LA, CALA and cala-plus, no download
	@$(BIN)/cala run

test: $(STAMP)  ## the test suite (under 10 minutes)
	@$(BIN)/python -m pytest $(WORKERS) -m "not long"

test-all: $(STAMP)  ## the test suite with the long tests
	@$(BIN)/python -m pytest $(WORKERS)

lint: $(STAMP)  ## ruff, mypy and the order of the rooms
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: $(STAMP)  ## check that documents point at things that exist
	@$(BIN)/python -m pytest tests/test_docs.py

bench: $(STAMP)  ## speed and cost beside what one would pick instead (under 30 minutes)
	@$(BIN)/python benchmarks/bench.py

clean:  ## remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
