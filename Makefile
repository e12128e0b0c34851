# Every target makes its own virtual environment first; the versions in constraints.txt are the ones that were tested.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
THREADS := 1

.PHONY: help demo test slow lint browser bench mutants clean

help:                           ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(VENV)/.installed        ## install everything and train on the built-in digits
	$(BIN)/sao train

test: $(VENV)/.installed lint browser  ## install everything and run all the tests
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n 2 --dist worksteal

slow: $(VENV)/.installed        ## the tests that `make test` leaves out for their length
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n 2 --dist worksteal -m slow

lint: $(VENV)/.installed        ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# The report is tried in Debian's Chromium. Where it cannot be installed those tests are skipped, and say so.
browser:                        ## Chromium for the tests of the report, by apt where that is possible
	@command -v chromium > /dev/null || { command -v apt-get > /dev/null && test "$$(id -u)" = 0 && apt-get update -qq -o DPkg::Lock::Timeout=120 \
		&& DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o DPkg::Lock::Timeout=120 --no-install-recommends chromium > /dev/null; } \
		|| echo "Chromium is missing and cannot be installed here: the report is not tried in a browser"

bench: $(VENV)/.installed       ## speed of a training step, against a literal version of it
	$(BIN)/sao bench

mutants: $(VENV)/.installed     ## wrong changes, one at a time: do the tests notice? hours; it can be stopped and goes on
	$(BIN)/python benchmarks/mutants
	$(BIN)/python benchmarks/mutants --report

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,metrics,baselines,track,tables,export,clustering]"
	touch $@

clean:                          ## remove the virtual environment
	rm -rf $(VENV)
