# Every target sets up what it needs on a fresh machine: Python 3.11 or newer and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-real test-cluster test-crash weekly structure docs lint types perf evidence evidence-run evidence-publish audit lock format clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

$(READY): setup.cfg setup.py pyproject.toml requirements.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	touch $@

demo: $(READY) ## SEU learns five tasks on scikit-learn's digits
	$(BIN)/seu-bench run --strategy seu --benchmark split_digits
	$(BIN)/seu-bench show split_digits-quick-seu-seed0

# Two processes of one thread each: more threads would only take the cores from each other. What Python compiles is kept.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -W error

test: lint types ## lint, types, then all tests but the long ones
	$(PYTEST) -m "not long and not slow and not crash and not cluster" -n 2 --dist loadfile

lint: $(READY) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy, strict
	$(BIN)/mypy

test-long: $(READY) ## tests that take seconds each: contracts of every component, processes, whole runs
	$(PYTEST) -m "long and not slow and not crash and not cluster" -n 2 --dist worksteal

test-real: $(READY) ## quick protocols on real data below SEU_BENCH_DATA, minutes each
	$(BIN)/python -m pytest -W error -m "slow" tests

test-cluster: $(READY) ## sweeps on a real Ray and on a real Slurm, which is started as root where it is installed
	$(PYTEST) -m "cluster" tests

test-crash: $(READY) ## kill runs at many points of every stage and resume them; ten minutes
	$(PYTEST) -m "crash" -n 2 --dist worksteal

weekly: test test-long test-cluster test-real test-crash ## all of them; an hour

structure: ## print rooms, lines, imports between modules, circles, public names; needs nothing installed
	$(PYTHON) scripts/structure.py

docs: $(READY) ## write what is counted in docs/, and build the site: build/site/index.html
	$(BIN)/python scripts/public_api.py --write
	$(BIN)/python -m scripts.website --notebooks

perf: $(READY) ## measure speed, memory and start-up on two idle cores, an hour; results/published/performance.md
	$(BIN)/python -m scripts.perf measure

evidence: $(READY) ## write docs/evidence/reproduction.md, its figures, reference_numbers.md and the other pages from the published records
	$(BIN)/python -m scripts.evidence

evidence-run: $(READY) ## run the quick part of the evidence again, into results/evidence
	failed=0; for sweep in scripts/evidence/sweeps/quick_*.toml scripts/evidence/sweeps/hat_mlp*.toml; do $(BIN)/seu-bench sweep $$sweep || failed=1; done; exit $$failed

evidence-publish: $(READY) ## replace the published records by the finished ones of results/evidence, then write the page
	$(BIN)/python -m scripts.evidence --publish results/evidence

audit: $(READY) ## look for advisories on every pinned version; needs the network
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[audit]'
	$(BIN)/python scripts/audit.py requirements.lock

lock: $(READY) ## write the hashes of the versions in requirements.lock; needs the network
	$(BIN)/python -m pip install --quiet 'uv>=0.5'
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile requirements.lock --output-file requirements.lock \
		--no-deps --generate-hashes --no-annotate --universal --python-version 3.11.5 --quiet >/dev/null

format: $(READY) ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and caches
	rm -rf $(VENV) .editable build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache
