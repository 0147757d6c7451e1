# Two commands do everything: `make nightly` and `make test`; `make check` is the part without Java.
# docs/tutorial.md gives the plain lines behind both.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
WITHOUT_JAVA := $(addprefix tests/,protocol storage log coordinator assignors simulator test_arrows.py test_documentation.py test_packaging.py test_ratios.py)
WAREHOUSE ?= ./warehouse

# uv takes 47 s of CPU where pip takes 119, and 83 of them if pip compiles nothing either. Where uv is not to be had, or cannot reach the
# packages because only pip's own settings name their place, pip installs them.
# PySpark comes without a wheel: compressing the one that is made of it, only to unpack it again, takes 15 of 31 s.
install = @$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1' 2>/dev/null \
  && $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '$(1)' \
    --config-settings-package 'pyspark:--build-option=--compression=stored' 2>/dev/null \
  || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable '$(1)'

PLATFORMS ?=

.PHONY: nightly test check lint pytest pytest-without-java platforms coverage bench ratios reference notebooks docs clean

nightly: $(VENV)/.warm
	@bash .ci/ensure-java
	@$(BIN)/groupcoord demo --warehouse $(WAREHOUSE)
	@echo "The command is in $(BIN): source $(BIN)/activate"

# Everything. The loops are compiled first, with checks and without, a core for each: Java's archive is made with those that are shipped.
# While Java writes it, the types are checked and the assertions of the tests are rewritten.
test: $(VENV)/.tests
	@$(BIN)/python -m tests.loops
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint $(VENV)/.warm $(VENV)/.rewritten
	@$(MAKE) --no-print-directory pytest

# Everything that needs no Java: a minute. All else is in `make test`.
check: $(VENV)/.tests
	@$(MAKE) --no-print-directory -j2 --output-sync=target lint pytest-without-java

lint: $(VENV)/.tests
	$(BIN)/ruff check .
	$(BIN)/mypy

PYTEST := --dist loadfile --no-loadscope-reorder --durations=25

# Three processes for two cores: a test that starts Java or waits for another process leaves its core to the others.
pytest: $(VENV)/.tests
	$(BIN)/python -m pytest -n 3 $(PYTEST)

# Without Java nothing waits, and each process more would collect all tests once more.
pytest-without-java: $(VENV)/.tests
	$(BIN)/python -m pytest -n 2 $(PYTEST) -m 'not (spark or process or cluster or broker or browser)' $(WITHOUT_JAVA)

# Environments of the Spark releases and platforms in conf/platforms (three minutes each): make platforms PLATFORMS="glue-5.0 fabric-1.3".
platforms: $(VENV)/.tests
	@bash .ci/ensure-java
	$(BIN)/python -m tests.platforms.matrix $(PLATFORMS)

# The table of docs/explanation/performance.md.
bench: $(VENV)/.warm
	@test -n "$(PEERS)" || { echo "Say where the script is that makes dumps and times Kafka's own readers: make bench PEERS=/path/to/peers.sh"; exit 2; }
	$(BIN)/python benchmarks/corners.py --peers $(PEERS)

# Fails where a run, a list, a dump or the doctor costs 25 % more CPU than the figures in benchmarks/ratios.json say.
ratios: $(VENV)/.warm
	$(BIN)/python benchmarks/ratios.py

# Branches of the rules and of the decoders that the part without Java reaches; fails below the share that .coveragerc keeps (eight minutes).
coverage: $(VENV)/.tests
	$(BIN)/coverage run -m pytest -q -m 'not (spark or process or cluster or broker or browser)' $(WITHOUT_JAVA) tests/doctor tests/dump
	$(BIN)/coverage report

# The generated parts of docs/reference.
reference: $(VENV)/.runs
	$(BIN)/python docs/generate.py

# notebooks/*.ipynb: the notebooks as they look after a run on the sample (two minutes).
notebooks: $(VENV)/.tests $(VENV)/.warm
	$(BIN)/python -m docs.notebooks

docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "groupcoord_spark needs Python 3.11 or newer; $(PYTHON) is older. Run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "No virtual environment could be made. On Debian and Ubuntu run: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.runs: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing groupcoord_spark and its packages into $(VENV) (once; a few minutes)"
	$(call install,.[spark])
	@touch $@

# What it saves can be missed: where Java cannot keep its classes, all the rest goes on as it did.
$(VENV)/.warm: pyproject.toml $(addprefix groupcoord_spark/,cli/warm_up.py spark/class_archive.py spark/session.py) | $(VENV)/.runs
	@bash .ci/ensure-java
	@echo "Preparing Spark, so that every run starts sooner (once; half a minute)"
	@$(BIN)/groupcoord warm-up --quiet || true
	@touch $@

$(VENV)/.tests: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing groupcoord_spark with its test packages into $(VENV) (once; a few minutes)"
	$(call install,.[dev])
	@touch $@ $(VENV)/.runs

# Once: otherwise each process of pytest rewrites the assertions of all files, 10 s of CPU. What cannot be collected is told by pytest itself.
$(VENV)/.rewritten: | $(VENV)/.tests
	@$(BIN)/python -m pytest --collect-only -q >/dev/null || true
	@touch $@

$(VENV)/.docs: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing groupcoord_spark with mkdocs-material into $(VENV) (once)"
	$(call install,.[docs])
	@touch $@ $(VENV)/.runs

clean:
	rm -rf $(VENV) warehouse demo-warehouse demo-logs build/site .mypy_cache .ruff_cache .pytest_cache .hypothesis
