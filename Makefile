# PYTHON names the interpreter of a new .venv; TORCH_INDEX and TORCH_CUDA say where torch comes from (see tools/setup).
PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2

SPEC := specs/deepseek_v4_flash.yaml
BIN  := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast lint clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.run ## set up, then generate, compile and validate DeepSeek-V4-Flash's indexer
	$(BIN)/v4gen build $(SPEC)

test: lint ## set up, then everything that must pass: lint, types, layers, drift, tests
	$(BIN)/v4gen check
	$(BIN)/pytest -n $(JOBS)

test-fast: $(VENV)/.dev ## the tests that need no compiler: unit and golden
	$(BIN)/pytest -n $(JOBS) tests/unit tests/golden

lint: $(VENV)/.dev ## ruff, mypy --strict and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

clean: ## remove the environment and every cache
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp an extra, so that the second call starts at once.
$(VENV)/.run: EXTRAS = run
$(VENV)/.dev: EXTRAS = run,dev
$(VENV)/.run $(VENV)/.dev: pyproject.toml constraints.txt tools/setup
	tools/setup $(PYTHON) $(VENV) $(EXTRAS)
	touch $@
