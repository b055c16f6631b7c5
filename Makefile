# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo serve-demo check test test-lowest lint bench docs dist lock clean

demo: .venv/base
	$(BIN)/hetdp mean examples/people.csv --value income --bounds 0 250000 --missing estimate \
		--epsilon tier --tier strict=0.02 --tier standard=0.1 --tier open=1 --tier public=public

serve-demo: .venv/server
	$(BIN)/hetdp serve --demo

# For daily work: everything that is quick, and fewer examples of each property. What it leaves out is slow, or needs
# an engine or a browser.
check: lint
	$(BIN)/python -m pytest -n auto --dist loadgroup -q --hypothesis-profile quick \
		-m "not (slow or engine or browser or stress or mutants or fuzz)"

test: .venv/test .venv/system
	$(BIN)/python -m pytest -n auto --dist loadgroup

# The lower bounds of pyproject.toml are true: a core of the tests passes with exactly these versions.
LOWEST := build/lowest/bin
test-lowest: build/lowest/ready
	$(LOWEST)/python -m pytest -q --hypothesis-profile quick -m "not (slow or engine)" \
		tests/core tests/tally tests/estimators tests/privacy/test_neighbours.py tests/test_contract.py \
		tests/cli/test_cli.py tests/ledger/test_ledger.py

lint: .venv/test .venv/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/test
	$(BIN)/python bench/run.py

docs: .venv/docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"

# The wheel and the source archive, checked as a stranger would use them: in an empty environment, every --help, and the
# tutorial word by word.
dist: .venv/dist
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/check_wheel.py dist/*.whl

# The versions with which everything was tested, and their hashes: pip install --require-hashes -r locked.txt
lock: .venv/dist
	$(BIN)/uv pip compile --quiet --universal --upgrade --generate-hashes --no-emit-index-url --no-annotate --no-header \
		--all-extras --python-version 3.11 pyproject.toml --output-file locked.txt

clean:
	rm -rf .venv build dist

.venv/base: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hetdp needs Python 3.11 or newer: make PYTHON=python3.12")'
	@echo "setting up .venv (a minute or two, once)"
	@$(PYTHON) -m venv .venv
	@$(PIP) --upgrade "pip>=25.1"
	@$(PIP) --editable '.[plots]'
	@touch $@

.venv/server: .venv/base
	@$(PIP) --editable '.[server]'
	@touch $@

.venv/test: .venv/base
	@$(PIP) --editable '.[fast,plots,postgres,server,spark]' --group test --group notebook --group dist hatchling
	@touch $@

# A browser and Java for the tests that need them; without the right to install, those tests say what is missing.
.venv/system: .venv/base
	@sh tests/system.sh
	@touch $@

.venv/lint: .venv/base
	@$(PIP) --group lint
	@touch $@

.venv/dist: .venv/base
	@$(PIP) --group dist
	@touch $@

.venv/docs: .venv/base
	@$(PIP) --group docs
	@touch $@

build/lowest/ready: pyproject.toml
	@$(PYTHON) -m venv --clear build/lowest
	@$(LOWEST)/python -m pip install --quiet --disable-pip-version-check uv
	@$(LOWEST)/uv pip compile --quiet --python $(LOWEST)/python --resolution lowest-direct --extra sql pyproject.toml \
		--output-file build/lowest/versions.txt
	@$(LOWEST)/uv pip install --quiet --python $(LOWEST)/python --requirement build/lowest/versions.txt \
		--group lowest --editable .
	@touch $@
