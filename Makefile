# make book   build the pages: every chapter is executed
# make test   build the pages, then run every test
# make check  say in 90 seconds whether a change is worth a full run
# make wheel  build the source archive and the wheel into dist/, check both, and run every chapter from the wheel
# make clean  remove what was built, keep the virtual environment
# make help   this list; for one figure, sentence or chapter see CONTRIBUTING.md
#
# Needs Python >= 3.11 and nothing else.  Another interpreter: make book PYTHON=python3.12
# On Linux without an NVIDIA GPU, a PyTorch without CUDA: make book TORCH_INDEX=https://download.pytorch.org/whl/cpu

PYTHON ?= python3
export TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# A kernel that the user installed elsewhere must not run the chapters.
export JUPYTER_PREFER_ENV_PATH := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONPATH :=
# PyTorch's threads wait for each other by spinning: beside another process that is up to ten times slower.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: book test check wheel clean help

book: $(STAMP)
	@rm -rf _build/html
	@echo "Executing $(words $(wildcard notebooks/*.ipynb)) notebooks and building the pages: about 7 minutes on two ordinary cores and 0.1 GB on disk."
	@echo "A chapter that has not changed since the last build is taken from its cache."
	@$(BIN)/jupyter-book build . --all -W -n --keep-going -q
	@echo "The book is built. Open $(CURDIR)/_build/html/index.html in a browser."

test: book
	@# The files with the fewest tests are the longest here: in the order of their names they do not all come last.
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

check: $(STAMP)
	@$(BIN)/python tools/check.py

wheel: $(STAMP)
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation --outdir dist .
	@$(BIN)/python -m twine check --strict dist/*
	@RELEASE=1 $(BIN)/python -m pytest -n 2 tests/notebooks/test_wheel.py

help:
	@sed -n 's/^# make/make/p' Makefile

clean:
	rm -rf _build build dist *.egg-info

$(STAMP): requirements.txt constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"Python %d.%d found; the book needs 3.11 or newer: make book PYTHON=python3.12" % sys.version_info[:2])'
	@echo "Installing the pinned requirements into $(VENV): 4 GB on disk (7 with CUDA), some minutes, in which nothing is printed ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python tools/torch_build.py
	@$(BIN)/python -m pip install --quiet --requirement requirements.txt --constraint constraints.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
