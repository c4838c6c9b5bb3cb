# Everything starts from a fresh clone with only Python and pip.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-all lint types bench docs clean

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

docs: $(STAMP)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site
