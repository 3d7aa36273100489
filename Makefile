PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.installed-demo
DEV := $(VENV)/.installed-dev
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# uv where it is on the PATH, pip otherwise; both take the versions of constraints.txt.
install = $(if $(shell command -v uv), \
	UV_TORCH_BACKEND=cpu uv pip install --quiet --python $(BIN)/python -c constraints.txt $(1) || \
	{ echo "uv could not install it; pip is tried instead"; $(pip) $(1); }, \
	$(pip) $(1))
pip = $(BIN)/python -m pip install --quiet --retries 10 --disable-pip-version-check -c constraints.txt

.PHONY: help demo test test-system test-all coverage lint docs bench clean
.DEFAULT_GOAL := help

help:  ## show this
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Installing is repeated only when what is to be installed has changed.
$(DEMO): pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing cala and what its report needs into $(VENV), without torch: 550 MB on disk (once)"
	@$(call install,-e '.[report]')
	@touch $@

$(DEV): $(DEMO)
	@echo "adding what tests and lint need: torch, ray, transformers, onnx, mypy and others, 1.8 GB more on disk (once)"
	@$(call install,-e '.[dev]')
	@touch $@

demo: $(DEMO)  ## teach a new class from five drawn pictures, then compare four methods on CIFAR-100; no data to download
	@$(BIN)/python examples/first_steps.py demo
	@printf '\nThe same idea measured: 40 new classes of CIFAR-100 from five images each, four methods on the same draws.\n$$ cala run\n'
	@$(BIN)/cala run
	@printf '\nNext: open the report above, or try your own photos, one folder per class:\n  $(BIN)/cala fit PHOTOS -o my-model\n  $(BIN)/cala predict my-model PHOTO\n'

test: $(DEV)  ## everything quick and deterministic (under 5 minutes)
	@$(PYTEST) -m "not system and not long"

test-system: $(DEV)  ## real processes: clusters, browsers, kill -9
	@$(PYTEST) --dist loadfile -m "system and not long"

test-all: $(DEV)  ## all tests, with many repetitions and thorough fuzzing
	@$(PYTEST) --dist loadfile --hypothesis-profile thorough

coverage: $(DEV)  ## branch coverage of src by all tests
	@$(PYTEST) --dist loadfile --hypothesis-profile thorough --cov --cov-report=term:skip-covered

lint: $(DEV)  ## ruff, mypy and the order of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: $(DEV)  ## build the site in site/ from docs/ and run the notebooks, without a network; a warning is an error
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs site

bench: $(DEV)  ## speed and cost beside what one would pick instead (under 30 minutes)
	@$(BIN)/python benchmarks/bench.py

clean:  ## remove what the other targets made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage* dist build site jupyter_execute docs/examples
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
