# Each target works alone on a fresh machine that has Python >= 3.10 with venv; installs happen once, in .venv.

PYTHON ?= python3
BIN := .venv/bin
PINS := requirements/constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint $(PINS)
PYTEST_ARGS ?=
SOAK_MINUTES ?= 60

.PHONY: serve test check bench-overload bench-peers chaos soak install-export install-dev pins bench security fuzz clean

serve: .venv/.serve ## the main job: fill holes and translate images on http://127.0.0.1:8000
	$(BIN)/retouch serve

test: .venv/.dev ## all tests
	$(BIN)/python -m pytest $(PYTEST_ARGS)

install-export: .venv/.export ## what `retouch export` needs: torch and onnx

install-dev: .venv/.dev

check: .venv/.dev ## format, lint, types, import contracts, tests with coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	rm -f .coverage .coverage.*
	$(MAKE) test PYTEST_ARGS="--cov --cov-report=term --cov-fail-under=95"

security: .venv/.security ## bandit over the code, pip-audit over the pinned requirements
	$(BIN)/bandit --quiet --recursive --severity-level medium engines export retouch service training # lower: ruff's S rules, reasons on the line
	$(BIN)/pip-audit --requirement $(PINS) --no-deps --disable-pip

FUZZ_SECONDS ?= 600
fuzz: .venv/.security ## the decoders under mutated images and the form reader under mutated bodies, ten minutes each
	mkdir -p build/fuzz && cd build/fuzz \
		&& ../../$(BIN)/python ../../tests/fuzz decoders -max_total_time=$(FUZZ_SECONDS) \
		&& ../../$(BIN)/python ../../tests/fuzz forms -max_total_time=$(FUZZ_SECONDS)

bench: .venv/.dev ## HTTP against direct calls, and the engines alone: docs/benchmarks.md
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/cpu_engines.py

bench-overload: .venv/.dev ## three times the capacity for a minute
	$(BIN)/python benchmarks/overload.py --json docs/pictures/overload.json --plot docs/pictures/overload.png

bench-peers: .venv/.dev ## the same work behind LitServe, mosec, BentoML, Ray Serve and PyTriton
	benchmarks/peers/install.sh
	$(BIN)/python benchmarks/side_by_side.py --json docs/pictures/peers.json --plot docs/pictures/peers.png

chaos: .venv/.dev ## faults on purpose, in one process and with several: nobody loses a request
	$(BIN)/python benchmarks/chaos.py --json docs/pictures/chaos.json --plot docs/pictures/chaos.png

soak: .venv/.dev ## SOAK_MINUTES=60 of good and bad clients: nothing may grow
	$(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES) --json docs/pictures/soak.json --plot docs/pictures/soak.png

pins: .venv/.dev ## resolve the newest allowed versions for every supported Python
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.10 --extra export --extra dev \
		--no-header --no-annotate --upgrade --output-file $(PINS)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .coverage .coverage.*

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.serve: pyproject.toml $(PINS) | .venv/bin/python
	$(PIP) --editable .
	touch $@

.venv/.export: pyproject.toml $(PINS) | .venv/bin/python
	$(PIP) --editable '.[export]'
	touch $@ .venv/.serve

.venv/.dev: pyproject.toml $(PINS) | .venv/bin/python
	$(PIP) --editable '.[export,dev]'
	touch $@ .venv/.serve .venv/.export

.venv/.security: pyproject.toml | .venv/.dev
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint $(PINS) --editable '.[security]'
	touch $@
