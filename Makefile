# Each target works alone on a fresh machine with Python >= 3.10 and venv; it installs what it needs once, into .venv.

PYTHON ?= python3
BIN := .venv/bin
PINS := requirements/constraints.txt
# files that pip reads only while it installs: a change of one of them installs again
BUILT_FROM := pyproject.toml $(wildcard service/*/*.cpp service/imaging/*/*.cpp)
# one of the extension modules compiled from these files; it is missing without a compiler
EXTENSION := service/imaging/texture/_patch_match.abi3.so
# bytecode is kept even if the environment forbids it, as in containers: otherwise each process compiles all modules that
# it imports, which costs a server 1.4 s of CPU time
unexport PYTHONDONTWRITEBYTECODE
# --no-compile: a module is compiled at its first import, and most are never imported; not --quiet: it takes minutes
INSTALL := -m pip --disable-pip-version-check install --no-compile --constraint $(PINS) --editable
PIP := $(BIN)/python $(INSTALL)
# new_venv PYTHON,FOLDER: with the pip that CPython 3.10 and 3.11 bring, an installation takes up to 1.7 times the CPU
# time; without network it goes on with that one
define new_venv
$(1) -m venv $(2)
-$(2)/bin/python -m pip --disable-pip-version-check install --quiet --retries 1 pip==26.3
endef
# one process per core, each file in one process, the longest files first (tests/conftest.py has the number and order);
# a process that dies ends the run and names its test, because xdist may wait for ever for a restarted process
PYTEST_CORES ?= --numprocesses=auto --dist=loadfile --no-loadscope-reorder --max-worker-restart=0
PYTEST_ARGS ?=
# only files that have the mark: importing all the others would take as long as a dozen slow tests
SLOW_FILES = $(sort $(shell grep -rl --include='test_*.py' --exclude-dir=browser --exclude-dir='*clients' \
	'pytest\.mark\.slow' tests))
SOAK_MINUTES ?= 60
# CPython 3.10, if it is installed: the Python for TensorRT 8.6, and the oldest that is supported
PYTHON310 ?= $(shell python3.10 -c 'import sys; print(sys.executable)' 2> /dev/null \
	|| PYENV_VERSION=$$(pyenv versions --bare 2> /dev/null | grep -m 1 '^3\.10\.') pyenv which python3.10 2> /dev/null)
# on a host without this project's environments: make test-gpu GPU_PYTHONS="python3 /path/to/python3.10"
GPU_PYTHONS ?= $(BIN)/python $(wildcard .venv-310/bin/python)

.PHONY: serve settings test test-slow test-310 test-gpu lint check coverage bench-overload bench-peers chaos soak install-export install-dev install-310 grpc-messages page pins bench security fuzz clients compat smoke clean browser

# a GPU's packages depend on its driver, so `retouch install-gpu` chooses them; without a driver it does nothing
CPU ?=
serve: .venv/.serve ## the main job: fill holes and translate images on http://127.0.0.1:8000, on an NVIDIA GPU if there is one; CPU=1 does not use it
	@test -e $(EXTENSION) || echo "serving without texture=copied, and more slowly: install a C++ compiler (g++), remove .venv/.serve and make serve again"
ifeq ($(CPU),1)
	test ! -e .venv/retouch-gpu.json || $(BIN)/retouch install-gpu --undo-unfinished
	$(BIN)/retouch serve --device cpu
else # also other values: some shells export CPU=x86_64
	$(BIN)/retouch install-gpu
	$(BIN)/retouch serve
endif

test: .venv/.dev ## the fast tests: at least four fifths of all
	$(BIN)/python -m pytest $(PYTEST_CORES) $(PYTEST_ARGS) -m "not gpu and not slow"

test-slow: .venv/.dev ## the slow tests: families end to end, training, processes, faults, images, a full disk
	$(BIN)/python -m pytest $(subst =auto,=logical,$(PYTEST_CORES)) $(PYTEST_ARGS) -m "slow and not gpu" $(SLOW_FILES)

test-310: install-310 ## the fast tests of engines and service under CPython 3.10 without torch; does nothing without CPython 3.10
	@test ! -e .venv-310/.test || .venv-310/bin/python -m pytest $(PYTEST_CORES) --durations=10 -m "not gpu and not slow" tests/engines tests/service

test-gpu: $(if $(findstring $(BIN),$(GPU_PYTHONS)),.venv/.dev) ## tests that need an NVIDIA GPU, under each Python; skipped ones say what is missing
	for python in $(GPU_PYTHONS); do $$python -m pytest -m gpu tests/gpu tests/engines tests/training/loop || exit 1; done

install-export: .venv/.export ## what `retouch export` needs: torch and onnx

install-dev: .venv/.dev

install-310:
	@if [ -z "$(PYTHON310)" ]; then echo "no CPython 3.10 here: its tests are not run"; \
	else $(MAKE) .venv-310/.test PYTHON310=$(PYTHON310); fi

lint: .venv/.dev ## format, lint, types, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint coverage

coverage: .venv/.dev ## all tests, with the coverage of the fast ones alone and of all
	rm -f .coverage .coverage.*
	$(MAKE) test PYTEST_ARGS="--cov --cov-report= --cov-fail-under=90 --durations=20"
	$(MAKE) test-slow PYTEST_ARGS="--cov --cov-append --cov-report=term --cov-fail-under=98 --durations=20"

# with a checkout of PyPA's advisory database, if pip-audit's service cannot be reached: make security ADVISORIES=DIR
ADVISORIES ?=
security: .venv/.security ## bandit over the code, pip-audit over the pinned requirements
	$(BIN)/bandit --quiet --recursive --severity-level medium engines export retouch service training # lower severities: ruff's S rules, with reasons in the code
	$(if $(ADVISORIES),$(BIN)/python requirements/audit.py $(PINS) $(ADVISORIES),$(BIN)/pip-audit --requirement $(PINS) --no-deps --disable-pip)

FUZZ_SECONDS ?= 600
fuzz: .venv/.security ## the decoders under mutated images and the form reader under mutated bodies, ten minutes each
	mkdir -p build/fuzz
	$(BIN)/python -m tests.fuzz decoders -artifact_prefix=build/fuzz/ -max_total_time=$(FUZZ_SECONDS)
	$(BIN)/python -m tests.fuzz forms -artifact_prefix=build/fuzz/ -max_total_time=$(FUZZ_SECONDS)

bench: .venv/.dev ## HTTP against direct calls, and the engines alone: docs/measurements/cpu.md
	$(BIN)/python -m benchmarks.load.serving
	$(BIN)/python -m benchmarks.host.cpu_engines

bench-overload: .venv/.dev ## three times the capacity for a minute
	$(BIN)/python -m benchmarks.load.overload --json docs/pictures/overload.json --plot docs/pictures/overload.png

bench-peers: .venv/.dev ## the same work behind LitServe, mosec, BentoML, Ray Serve and PyTriton
	benchmarks/peers/install.sh
	$(BIN)/python -m benchmarks.peers.side_by_side --json docs/pictures/peers.json --plot docs/pictures/peers.png

chaos: .venv/.dev ## faults on purpose, in one process and with several: no request is lost
	$(BIN)/python -m benchmarks.faults.chaos --json docs/pictures/chaos.json --plot docs/pictures/chaos.png

soak: .venv/.dev ## SOAK_MINUTES=60 of good and bad clients: no resource may grow
	$(BIN)/python -m benchmarks.load.soak --minutes $(SOAK_MINUTES) --json docs/pictures/soak.json --plot docs/pictures/soak.png

settings: .venv/.serve ## docs/settings.md, generated from the settings
	$(BIN)/python -m retouch.commands.settings_table > docs/settings.md

grpc-messages: .venv/.dev ## service/grpc/protocol/open_inference_pb2.py, from the .proto file beside it
	$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. service/grpc/protocol/open_inference.proto

page: .venv/.dev ## service/web/page/built, from service/web/page/static
	$(BIN)/python -m service.web.page.build

pins: .venv/.dev ## resolve the newest allowed versions for every supported Python
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.10 --extra export --extra dev \
		--no-header --no-annotate --upgrade --output-file $(PINS)

clients: .venv/.serve .venv-clients/.ready ## /docs in Chromium (CHROMIUM=/usr/bin/chromium), and clients generated from /openapi.json; needs node
	.venv-clients/bin/python -m pytest --config-file tests/clients/pytest.ini tests/clients

compat: .venv/.grpc .venv-compat/.ready ## clients of other servers' APIs against a server with the shipped model; needs node, curl and Chromium
	.venv-compat/bin/python -m pytest --config-file tests/foreign_clients/pytest.ini --rootdir . --ignore tests/foreign_clients/of_kserve tests/foreign_clients
	.venv-compat/bin/python -m pytest --config-file tests/foreign_clients/pytest.ini --rootdir . tests/foreign_clients/of_kserve # apart: its protobuf messages and tritonclient's have the same names

CHROMIUM ?= /usr/bin/chromium
smoke: .venv/.grpc .venv-smoke/.ready ## openai, tritonclient and the page in Chromium, if there is one, against a server with the shipped models
	.venv-smoke/bin/python -m pytest --config-file tests/foreign_clients/pytest.ini --rootdir . -k "not npm" \
		tests/foreign_clients/test_openai.py tests/foreign_clients/test_tritonclient.py tests/foreign_clients/test_tritonclient_grpc.py
	@if [ -x $(CHROMIUM) ]; then CHROMIUM=$(CHROMIUM) .venv-smoke/bin/python -m pytest --config-file tests/browser/pytest.ini \
		-k "equals_that_of_the_api or when_the_stroke_is_let_go" tests/browser/test_filling.py; \
	else echo "no Chromium here: the page is not tried"; fi

browser: .venv/.serve .venv-browser/.ready ## the page in Chromium (CHROMIUM=/usr/bin/chromium) against a real server; needs npm for axe-core
	.venv-browser/bin/python -m pytest --config-file tests/browser/pytest.ini $(PYTEST_ARGS) tests/browser

clean:
	rm -rf .venv .venv-310 .venv-clients .venv-compat .venv-browser .venv-smoke tests/clients/node_modules .mypy_cache .ruff_cache .pytest_cache .coverage .coverage.*

.venv/bin/python:
	@echo "making the virtual environment .venv"
	$(call new_venv,$(PYTHON),.venv)

.venv/.serve: $(BUILT_FROM) $(PINS) | .venv/bin/python
	@echo "installing what serving needs into .venv, once: about 0.7 GB, half a minute on a fast network"
	$(PIP) '.[serve]'
	touch $@

.venv/.grpc: $(BUILT_FROM) $(PINS) | .venv/.serve
	@echo "installing what gRPC needs into .venv, once: about 20 MB"
	$(PIP) '.[grpc]'
	touch $@

.venv/.export: $(BUILT_FROM) $(PINS) | .venv/bin/python
	@echo "installing what export needs into .venv, once: torch and onnx, several GB, minutes"
	$(PIP) '.[export]'
	touch $@ .venv/.serve

.venv/.dev: $(BUILT_FROM) $(PINS) | .venv/bin/python
	@echo "installing what the tests need into .venv, once: several GB, minutes"
	$(PIP) '.[export,dev]'
	touch $@ .venv/.serve .venv/.grpc .venv/.export

.venv-310/.test: $(BUILT_FROM) $(PINS)
	@echo "installing what the tests need under CPython 3.10 into .venv-310, once: minutes"
	$(call new_venv,$(PYTHON310),.venv-310)
	.venv-310/bin/python $(INSTALL) '.[test]'
	! .venv-310/bin/python -c 'import torch' 2> /dev/null
	touch $@

.venv/.security: pyproject.toml | .venv/.dev
	@echo "installing bandit, pip-audit and atheris into .venv, once"
	$(PIP) '.[security]'
	touch $@

AXE := axe-core@4.14.1
.venv-browser/.ready: tests/browser/requirements.txt
	$(call new_venv,$(PYTHON),.venv-browser)
	.venv-browser/bin/python -m pip --disable-pip-version-check install --quiet --requirement tests/browser/requirements.txt
	npm install --prefix .venv-browser --no-audit --no-fund --no-package-lock --silent $(AXE)
	touch $@

.venv-smoke/.ready: tests/foreign_clients/requirements.txt
	$(call new_venv,$(PYTHON),.venv-smoke)
	grep -E '^(httpx|numpy|openai|pillow|playwright|pytest|tritonclient)\b' $< \
		| .venv-smoke/bin/python -m pip --disable-pip-version-check install --quiet --requirement /dev/stdin
	touch $@

.venv-clients/.ready: tests/clients/requirements.txt tests/clients/package.json
	$(call new_venv,$(PYTHON),.venv-clients)
	.venv-clients/bin/python -m pip --disable-pip-version-check install --quiet --requirement tests/clients/requirements.txt
	cd tests/clients && npm install --no-audit --no-fund --no-package-lock --silent
	touch $@

.venv-compat/.ready: tests/foreign_clients/requirements.txt tests/foreign_clients/package.json
	$(call new_venv,$(PYTHON),.venv-compat)
	.venv-compat/bin/python -m pip --disable-pip-version-check install --quiet --requirement tests/foreign_clients/requirements.txt
	.venv-compat/bin/python -m pip --disable-pip-version-check download --quiet --no-deps --dest .venv-compat/iopaint iopaint==1.6.0 # only its page is used
	cd .venv-compat/iopaint && $(PYTHON) -m zipfile --extract *.whl .
	mkdir -p .venv-compat/npm && cp tests/foreign_clients/package.json .venv-compat/npm
	cd .venv-compat/npm && npm install --no-audit --no-fund --no-package-lock --silent
	touch $@
