# Every target makes its own virtual environment first; the versions in constraints.txt are the ones that were tested.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
THREADS := 1

.PHONY: help demo test lint bench mutants clean

help:                           ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(VENV)/.installed        ## install everything and train on the built-in digits
	$(BIN)/sao train

test: $(VENV)/.installed lint   ## install everything and run all the tests
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed        ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(VENV)/.installed       ## speed of a training step, against a literal version of it
	$(BIN)/sao bench

mutants: $(VENV)/.installed     ## wrong changes, one at a time: do the tests notice? hours; it can be stopped and goes on
	$(BIN)/python benchmarks/mutants
	$(BIN)/python benchmarks/mutants --report

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,metrics,baselines,track,tables]"
	touch $@

clean:                          ## remove the virtual environment
	rm -rf $(VENV)
