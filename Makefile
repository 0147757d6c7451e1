# Two commands do everything: `make nightly` and `make test`. docs/tutorial.md gives the plain lines behind both.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
SAMPLE := tests/golden/classic-modern/logs
WAREHOUSE ?= ./warehouse

.PHONY: nightly test bench reference docs clean

nightly: $(VENV)/.warm
	@bash .ci/ensure-java
	@$(BIN)/groupcoord nightly $(SAMPLE) --warehouse $(WAREHOUSE) --cluster sample --as-of 2026-11-21T08:00:00Z
	@printf '%s\n' '' 'Try next:' \
	  '  $(BIN)/groupcoord list --state --warehouse $(WAREHOUSE)' \
	  '  $(BIN)/groupcoord describe --all-groups --warehouse $(WAREHOUSE)' \
	  '  $(BIN)/groupcoord nightly /path/to/kafka-logs --warehouse $(WAREHOUSE) --cluster mine'

test: $(VENV)/.tests
	@bash .ci/ensure-java
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

bench: $(VENV)/.tests
	@bash .ci/ensure-java
	@test -n "$(PEERS)" || { echo "Say where the script is that makes dumps and times Kafka's own readers: make bench PEERS=/path/to/peers.sh"; exit 2; }
	$(BIN)/python benchmarks/nightly.py --peers $(PEERS)

# The generated parts of docs/reference.
reference: $(VENV)/.runs
	$(BIN)/python docs/generate.py

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "groupcoord_spark needs Python 3.11 or newer; $(PYTHON) is older. Run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "No virtual environment could be made. On Debian and Ubuntu run: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.runs: $(VENV)/.made pyproject.toml
	@echo "Installing groupcoord_spark and its packages into $(VENV) (once; a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

# What it saves can be missed: where Java cannot keep its classes, all the rest goes on as it did.
$(VENV)/.warm: pyproject.toml | $(VENV)/.runs
	@bash .ci/ensure-java
	@echo "Preparing Spark, so that every run starts sooner (once; half a minute)"
	@$(BIN)/groupcoord warm-up --quiet || true
	@touch $@

$(VENV)/.tests: $(VENV)/.made pyproject.toml
	@echo "Installing groupcoord_spark with its test packages into $(VENV) (once; a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/.runs

$(VENV)/.docs: $(VENV)/.made pyproject.toml
	@echo "Installing groupcoord_spark with mkdocs-material into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@ $(VENV)/.runs

clean:
	rm -rf $(VENV) warehouse build/site .mypy_cache .ruff_cache .pytest_cache .hypothesis
