# Everything starts from a fresh clone with only Python and pip.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-quarter test-all lint types bench docs release simulators kernels clean

$(STAMP): pyproject.toml constraints.txt
	@echo "derivable: making $(VENV), once; a few minutes, most of them downloads"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "derivable: installing PyTorch"
	@$(BIN)/python -m pip install --constraint constraints.txt torch==2.13.0
	@echo "derivable: installing the other packages"
	@$(BIN)/python -m pip install --constraint constraints.txt --editable ".[test,lint,docs]"
	touch $@

demo: $(STAMP)
	$(BIN)/derivable demo digits

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

# The quick tests and a quarter of the slow ones, which the hash of the commit's files chooses; 0 without a clone.
test-quarter: $(STAMP)
	$(BIN)/python -m pytest -n 2 --quarter $$($(BIN)/python tests/quarters.py)

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/pyright --pythonpath $(BIN)/python

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	$(BIN)/python benchmarks/circuits.py

# What simulates and synthesises accelerators, where the machine can have it; tests of what is not there are skipped.
simulators:
	@root=$$([ "$$(id -u)" = 0 ] || echo sudo -n); \
	for tool in verilator iverilog yosys g++; do \
		if command -v $$tool > /dev/null; then continue; fi; \
		if [ -z "$$listed" ]; then listed=yes; timeout 120 $$root apt-get update -qq > /dev/null 2>&1; fi; \
		DEBIAN_FRONTEND=noninteractive timeout 300 $$root apt-get install -y -qq --no-install-recommends $$tool \
			> /dev/null 2>&1 || echo "derivable: $$tool is not installed, and could not be"; \
	done

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# What a wheel has compiled kernels for.
PROCESSORS ?= $(if $(filter x86_64,$(shell uname -m)),x86-64-v2 x86-64-v3,native)

# Wheel and sdist in dist/. The wheel, which is made from the sdist, is installed into fresh environments that know nothing of
# the clone: one without extras runs a program, and one with torch README's examples and the demo.
release: $(STAMP)
	rm -rf dist
	$(BIN)/python -m pip install --quiet --constraint constraints.txt build
	DERIVABLE_PROCESSORS="$(PROCESSORS)" $(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv dist/base
	dist/base/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd dist/base && bin/derivable --version && echo 'rel p = {0.5::(1), 0.5::(2)}  rel q() = p(x)  query q' > q.scl && bin/derivable run q.scl
	$(PYTHON) -m venv dist/environment
	dist/environment/bin/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	dist/environment/bin/python -m pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[demo]"
	cd dist/environment && PATH=$$PWD/bin:$$PATH bin/python -P $(CURDIR)/tests/documentation.py $(CURDIR)/README.md $$(mktemp -d)
	cd dist/environment && bin/derivable --version && bin/derivable demo digits

# The kernels whose text has changed; without this the first one that is used has them compiled.
kernels: $(STAMP)
	$(BIN)/python -m derivable.device.cpu.building.build_kernels

clean:
	rm -rf $(VENV) site dist
