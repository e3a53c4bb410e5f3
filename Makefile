# Everything from a bare clone, with Python 3.11 and make: `make demo`, `make test`.
PYTHON ?= python3.11
# What pip installs first. If your package index serves this version with CUDA, which is gigabytes, ask for the CPU build:
# make test TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
TORCH ?= torch==2.13.0
VENV ?= .venv
PYTEST_ARGS ?=
SHARE ?= 1/1

# Python keeps what it has compiled, even if the environment says not to: tests start many processes, which would all compile.
export PYTHONDONTWRITEBYTECODE :=
# Two workers on two cores have one thread each: torch's is set in tests/conftest.py, NumPy reads its own when it is imported.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: help demo test test-rest test-all test-fast lint wheel docs linkcheck bench papers clean release matrix numbers

help:
	@echo "make demo      the default bandit beside Greedy, LinUCB and Vowpal Wabbit: a table, a figure, a file"
	@echo "make test      the tests that are not long: some minutes"
	@echo "make test-rest the long tests, about an hour; SHARE=2/7 runs a seventh of their cases"
	@echo "make test-all  all tests, and all scripts with TorchScript's optimizer"
	@echo "make test-fast its quick tier: every public class once, in about a minute"
	@echo "make lint      ruff, and mypy and pyright on an installed copy"
	@echo "make wheel     build the wheel and check what it holds"
	@echo "make docs      build the site in docs/_build/html and check its links"
	@echo "make linkcheck ask for every address that the site links to: needs the network"
	@echo "make release   build sdist and wheel twice, and keep them in dist/ if the bytes are the same"
	@echo "make matrix    the quick tier on pairs of Python and torch, for docs/versions.md: hours, and 8 GB at a time"
	@echo "make numbers   list the tables of the docs and what prints them; RUN=\"--run quick\" runs scripts and compares"
	@echo "make papers    list the experiments of the papers; RUN=\"hvt_ucb --workers 2\" runs one, RUN=--all runs all,"
	@echo "               RUN=\"hvt_ucb --tables\" prints all tables of its saved results"
	@echo "make bench     speed against NumPy and other libraries, as ratios in one run"

# Python compiles a module when it is first imported; compiling all of torch here would take a minute.
$(READY): pyproject.toml setup.py torchonline/core/_compiled.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

demo: $(READY)
	$(ONE_THREAD) $(BIN)/python examples/demo.py

PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest --ignore=tests/benchmarks --numprocesses=2 --dist=worksteal

# tests/long_tests.txt lists the long tests.
test: $(READY)
	$(PYTEST) -m "not long and not ray" $(PYTEST_ARGS)

test-rest: $(READY)
	$(PYTEST) -m "long and not ray" --share $(SHARE) $(PYTEST_ARGS)

test-all: $(READY)
	$(PYTEST) --optimize-scripts $(PYTEST_ARGS)

test-fast: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest -m "fast and not slow" --ignore=tests/benchmarks --numprocesses=2 --dist=worksteal $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/installed .
	cd $(VENV)/installed && ../bin/mypy --config-file ../../pyproject.toml torchonline
	cp tests/typing/* $(VENV)/installed
	cd $(VENV)/installed && ../bin/basedpyright --pythonpath ../bin/python library.py

wheel: $(READY)
	$(BIN)/python tests/check_wheel.py

# Pages of names and scripts that are gone would stay, and what was read before is not warned of again. What the gallery has drawn
# is kept until its script or the code of the library changes.
docs: $(READY)
	rm -rf docs/_build/html docs/_build/doctrees docs/reference/generated docs/reference/examples
	$(ONE_THREAD) $(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet --jobs 2 \
		--doctree-dir docs/_build/doctrees docs docs/_build/html
	$(BIN)/python docs/site_parts/check_links.py docs/_build/html

# Needs the network, so it is no part of `make docs`: a site that is down must not stop a change. A workflow runs it each month.
linkcheck: $(READY)
	rm -rf docs/_build/linkcheck
	$(ONE_THREAD) $(BIN)/python -m sphinx --builder linkcheck --keep-going --quiet --jobs 2 \
		--doctree-dir docs/_build/linkcheck/doctrees docs docs/_build/linkcheck

release: $(READY)
	$(BIN)/python releases/build.py

numbers: $(READY)
	$(BIN)/python releases/tables.py $(RUN)

matrix:
	$(PYTHON) tests/matrix.py

bench: $(READY)
	$(ONE_THREAD) $(BIN)/python -m pytest tests/benchmarks \
		--benchmark-only --benchmark-disable-gc --benchmark-columns=min,median --benchmark-sort=name -p no:xdist

papers: $(READY)
	$(ONE_THREAD) $(BIN)/python examples/papers $(RUN)

clean:
	rm -rf $(VENV) build dist outputs lightning_logs *.egg-info torchonline/core/*.so docs/_build docs/gallery docs/results docs/reference/generated docs/reference/examples
