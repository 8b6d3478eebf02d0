# Everything, set-up included:   make demo   (the quickstart)   and   make test   (the whole suite).
#   make demo PYTHON=python3.12      another interpreter (3.11 or newer)
#   make test VENV=some/directory    another virtual environment
#   make test PYTEST_ARGS="-k kernels -x"

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=

PY := $(VENV)/bin/python
PIP_INSTALL := "$(PY)" -m pip install --quiet --disable-pip-version-check --no-input

.PHONY: help demo test test-float64 test-float32 test-slow test-defaults test-lowest end-to-end lint format docs bench dist clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo     run examples/quickstart.py'
	@echo 'make test     the test suite in float64 and in float32'
	@echo 'make test-defaults   what other packages decide, with the settings that users have; make test-lowest   with the oldest versions'
	@echo 'make test-slow   the tests that make test leaves out because they take seconds each, in float64'
	@echo 'make end-to-end   chains against exact posteriors, notebooks, the code of the documentation, doctests'
	@echo 'make lint     ruff and mypy'
	@echo 'make format   let ruff rewrite what make lint would complain about'
	@echo 'make docs     the documentation, in docs/_build/html'
	@echo 'make bench    list the benchmarks; make bench NAME=evidence runs one'
	@echo 'make dist     wheel and source distribution, in dist/, checked'
	@echo 'make clean    remove the virtual environment, caches and builds'
	@echo 'Each sets up what it needs in $(VENV) first, with $(PYTHON) (override with PYTHON=..., VENV=...).'

demo: $(VENV)/.demo-installed
	"$(PY)" examples/quickstart.py

test: test-float64 test-float32

# One lane: the test suite, in two processes with a BLAS thread each. Tests mostly compile, so what one process has
# compiled the other reads from a cache, as does the next run.
COMPILED := JAX_COMPILATION_CACHE_DIR="$(abspath $(VENV))/.compiled" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
  JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
define lane
	$(COMPILED) JAX_ENABLE_X64=$(1) OPENBLAS_NUM_THREADS=1 "$(PY)" -m pytest --numprocesses 2 $(2) $(PYTEST_ARGS)
endef
suite := --dist loadfile -m "not (end_to_end or slow)"

test-float64: $(VENV)/.test-installed
	$(call lane,1,$(suite))

test-float32: $(VENV)/.test-installed
	$(call lane,0,$(suite))

test-slow: $(VENV)/.test-installed
	$(call lane,1,--dist loadfile -m "slow and not end_to_end")

# Tests of what other packages decide: with JAX's own settings, as users have them, and with the oldest versions that
# pyproject.toml allows, in an environment of their own (VENV=... names it). The oldest NumPyro is the newest: once it is
# not, contract and models belong to both.
callers = $(wildcard $(addprefix tests/,diagnostics plots posteriors tables test_import.py $(1)))
test-defaults: $(VENV)/.test-installed
	TEST_WITH_DEFAULTS=1 $(call lane,1,$(suite)) $(call callers,contract models)

test-lowest: $(VENV)/.lowest-installed
	$(call lane,1,$(suite)) $(call callers,statistics)

end-to-end: $(VENV)/.test-installed
	$(call lane,1,-m end_to_end)
	$(COMPILED) OPENBLAS_NUM_THREADS=1 "$(PY)" -m pytest --numprocesses 2 --doctest-modules ppl_sgp

lint: $(VENV)/.test-installed
	"$(PY)" -m ruff check .
	"$(PY)" -m ruff format --check .
	"$(PY)" -m mypy

format: $(VENV)/.test-installed
	"$(PY)" -m ruff check --fix .
	"$(PY)" -m ruff format .

docs: $(VENV)/.test-installed
	"$(PY)" -m sphinx -W --keep-going -b html docs docs/_build/html

ifdef NAME
bench: $(VENV)/.test-installed
	"$(PY)" benchmarks/$(NAME).py
else
bench:
	@echo 'Benchmarks; run one with make bench NAME=...'
	@for script in $$(grep -l __main__ benchmarks/*.py); do echo "  $$(basename "$$script" .py)"; done
endif

dist: $(VENV)/.test-installed
	rm -rf dist
	"$(PY)" -m build
	"$(PY)" -m twine check --strict dist/*

clean:
	rm -rf "$(VENV)" .mypy_cache .pytest_cache .ruff_cache build dist docs/_build
	find ppl_sgp tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp files make a second call skip the installation unless pyproject.toml has changed since.
$(VENV)/.demo-installed $(VENV)/.test-installed: $(VENV)/.%-installed: pyproject.toml | $(VENV)/.created
	@echo 'Installing ppl_sgp[$*] into $(VENV) (minutes, the first time) ...'
	@$(PIP_INSTALL) --editable '.[$*]'
	@touch "$@"

$(VENV)/.lowest-installed: pyproject.toml .ci/lowest_versions.py | $(VENV)/.created
	@echo 'Installing ppl_sgp[test] with the oldest versions allowed into $(VENV) (minutes, the first time) ...'
	@"$(PY)" .ci/lowest_versions.py > "$(VENV)/lowest.txt"
	@$(PIP_INSTALL) --editable '.[test]' --constraint "$(VENV)/lowest.txt"
	@touch "$@"

$(VENV)/.created:
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo 'No "$(PYTHON)" found. Install Python 3.11 or newer, or name one: make demo PYTHON=/path/to/python3.12' >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ppl_sgp needs Python 3.11 or newer, but \
	$(PYTHON) is Python " + sys.version.split()[0] + ". Name a newer one: make demo PYTHON=python3.12")'
	@echo 'Creating a virtual environment in $(VENV) ...'
	@"$(PYTHON)" -m venv "$(VENV)" || { \
	  echo 'Could not create $(VENV). On Debian and Ubuntu the package python3-venv is needed.' >&2; exit 1; }
	@touch "$@"
