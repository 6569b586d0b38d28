# Everything from a bare machine: Python 3.11+ and make are enough. `make help` lists the targets.
# The environment lives in .venv, whatever else is active; another Python: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CLASSES := $(VENV)/spark-classes.jsa

# Another active environment must not leak in, neither its packages nor its standard library.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help demo test quick soak check lint types contracts bench clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

demo: $(READY) ## run the engine on an embedded workload, live in the terminal
	$(BIN)/geoswarm demo $(ARGS)

# Two at a time, each with a Spark of its own: most of them leave one of two cores idle.
test: $(CLASSES) ## all tests; make test ARGS='-k grid' for some
	@echo '== tests'
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(ARGS)

# Kernels that are compiled already are found on the disk: the first run after a change of them takes longer.
quick: $(READY) ## tests without Spark and services, in a minute
	@echo '== quick tests'
	$(BIN)/python -m pytest -m quick --numprocesses 2 --dist worksteal $(ARGS)

$(CLASSES): $(READY)
	@echo '== an archive of the classes of Spark, so that tests start it in half the time (once)'
	-$(BIN)/python tests/class_archive.py

soak: $(READY) ## fresh seeds for random worlds: make soak MINUTES=5
	$(BIN)/python tests/soak.py --minutes $(or $(MINUTES),5)

check: lint types contracts test ## what CI runs: lint, types, contracts, test
	@echo '== all checks passed'

lint: $(READY) ## ruff: rules and format
	@echo '== lint'
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict
	@echo '== types'
	$(BIN)/mypy

contracts: $(READY) ## import-linter: floors and walls
	@echo '== import contracts'
	$(BIN)/lint-imports

bench: $(READY) ## make bench NAME=... ARGS='--scale full'; without a name, the list
	$(BIN)/geoswarm bench $(or $(NAME),list) $(ARGS)

clean: ## remove the environment, caches and reports
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf demo-report demo-checkpoint bench-results spark-warehouse metastore_db derby.log
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Made again whenever the dependencies change; `.ready` is written last, so a broken install is not taken for one.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "geoswarm needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo missing):" \
	       "install one, or name it: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@echo '== setting up $(VENV) (once; a few minutes)'
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || { \
	  echo "no virtual environment could be made: on Debian and Ubuntu, install python3-venv" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@
