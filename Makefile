# Every target makes its own virtual environment first; the versions in constraints.txt are the ones that were tested.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
THREADS := 1

.PHONY: help demo test quick slow lint browser docs dist wheel bench mutants clean

help:                           ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: $(VENV)/.installed        ## install everything and train on the built-in digits
	$(BIN)/sao train

test: $(VENV)/.installed lint browser  ## install everything and run all tests but the slow ones
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n 2 --dist loadfile

# One whole step of the method, the mathematics with its oracles, resuming, the evaluator, the map of imports, names in documents.
QUICK := tests/test_objectives.py tests/test_smoothness.py tests/test_memory.py tests/test_randomness.py tests/test_imports.py \
	tests/config/test_config.py tests/test_versions.py tests/methods/test_structural_step.py tests/training/test_checkpoint.py \
	tests/evaluation/test_svm.py tests/evaluation/test_kmeans.py tests/commands/test_options.py

quick: $(VENV)/.installed       ## style and the most telling tests, in a minute: for a change of one file
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n 2 --dist worksteal $(QUICK)

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

docs: $(VENV)/.installed        ## the documentation site, in site/; it needs no network, neither to build nor to read
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "site/index.html"

dist: $(VENV)/.installed        ## the source distribution and the wheel, in dist/
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/twine check --strict dist/*

# tests/test_wheel.py does the same with links to installed packages; here all of them are fetched and installed anew.
wheel: dist                     ## the wheel in an empty environment, without extras: train, read a folder, use a model
	rm -rf build/empty && $(PYTHON) -m venv build/empty
	build/empty/bin/pip install --quiet --constraint constraints.txt dist/*.whl
	build/empty/bin/sao --help > /dev/null
	mkdir build/empty/here && build/empty/bin/python -I tests/installed.py build/empty/here

bench: $(VENV)/.installed       ## speed of a training step, against a literal version of it
	$(BIN)/sao bench

mutants: $(VENV)/.installed     ## wrong changes, one at a time: do the tests notice? hours; it can be stopped and goes on
	$(BIN)/python benchmarks/mutants
	$(BIN)/python benchmarks/mutants --report

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev,docs,metrics,fid,baselines,track,wandb,mlflow,tables,export,clustering,heic,tiff,dicom,hub]"
	touch $@

clean:                          ## remove the virtual environment
	rm -rf $(VENV)
