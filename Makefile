# Two commands do everything on a fresh machine with Python 3.11 or newer:
#   make demo   install, train a hint agent around a frozen actor on a CPU, print what it was worth
#   make test   install, lint, type-check, test
PYTHON ?= python3
BIN := .venv/bin
SEED ?= 0
RUN := runs/quickstart-$(SEED)
export OMP_WAIT_POLICY ?= passive
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test lint test-full install clean

install: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: .venv/installed
	$(BIN)/pilotfish train recipes/quickstart.yaml --run $(RUN) --set seed=$(SEED)
	$(BIN)/pilotfish eval $(RUN)

lint: .venv/installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

test-full: .venv/installed
	$(BIN)/python -m pytest -m slow

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
