# Every target works in a fresh clone with nothing done before: it sets up .venv first, once, and again when
# pyproject.toml or constraints.txt change.
#
#   make run              from source data to a published, verified model: make run CONFIG=configs/quickstart.yaml
#   make test             the tests that need no container engine
#   make check            format, lint, types, imports between rooms, manifests
#   make images           the stage images, with the engine that `docker` reaches
#   make test-containers  the tests that run those images
#   make golden           renew the golden copy of the compiled pipeline
#   make constraints      renew constraints.txt from newest releases
#   make bench            every benchmark
#   make clean            what builds and checks leave behind; `make distclean` removes .venv too

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
STAMP := $(VENV)/.hopline-installed

CONFIG ?= configs/umls.yaml
ARGS ?=
WORKERS ?= 2
PYTEST_ARGS ?=

DOCKER ?= docker
BASE_IMAGE ?= python:3.11-slim-bookworm
IMAGE_PREFIX ?= hopline
IMAGE_TAG ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo dev)
IMAGE_PYTHON ?= 3.11
STAGES := dataset train evaluate publish
export DOCKER_BUILDKIT := 1

# Two test processes share two cores: more threads in each would only wait for one another.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help setup run test check format images wheelhouse test-containers golden constraints bench clean distclean

help:
	@sed -n '4,12s/^#   //p' Makefile

setup: $(STAMP)

# pykeen is here for the data files of UMLS, Kinships and Nations alone, so without what its code would need.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Hopline needs Python 3.11 or newer; name one with PYTHON=/path/to/python3.11" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --disable-pip-version-check -c constraints.txt -e '.[pipelines,cluster,test,dev]'
	$(PIP) install --quiet --disable-pip-version-check --no-deps -c constraints.txt pykeen
	@touch $@

run: $(STAMP)
	@$(BIN)/hopline run -c $(CONFIG) $(ARGS)

test: $(STAMP)
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m 'not containers' $(PYTEST_ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hopline validate $$(find manifests -name '*.yaml' | sort)

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

images: docker/wheelhouse/.filled
	@for stage in $(STAGES); do \
	  $(DOCKER) build --quiet --file docker/Dockerfile --target $$stage --tag $(IMAGE_PREFIX)/$$stage:$(IMAGE_TAG) \
	    --build-arg BASE_IMAGE=$(BASE_IMAGE) --build-arg PIP_OPTIONS=--no-index \
	    --build-arg GIT_COMMIT=$$(git rev-parse HEAD 2>/dev/null || true) \
	    --build-arg VERSION=$$($(BIN)/python -c 'import hopline; print(hopline.__version__)') \
	    --build-arg CONSTRAINTS_DIGEST=$$(sha256sum constraints.txt | cut -d ' ' -f 1) . >/dev/null; \
	  $(DOCKER) image inspect --format '{{index .RepoTags 0}} {{.Size}}' $(IMAGE_PREFIX)/$$stage:$(IMAGE_TAG) \
	    | awk '{printf "%-40s %5.0f MB\n", $$1, $$2 / 1e6}'; \
	done

# What the images install, downloaded here once, so that building them reaches no package index.
wheelhouse: docker/wheelhouse/.filled

docker/wheelhouse/.filled: pyproject.toml constraints.txt | $(STAMP)
	rm -f docker/wheelhouse/*.whl
	$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*p["project"]["dependencies"], *p["build-system"]["requires"], sep="\n")' > docker/wheelhouse/requirements.txt
	$(PIP) download --quiet --dest docker/wheelhouse --only-binary=:all: --python-version $(IMAGE_PYTHON) \
	  -c constraints.txt -r docker/wheelhouse/requirements.txt
	$(PIP) wheel --quiet --no-deps --wheel-dir docker/wheelhouse -c constraints.txt kfp pykeen
	@touch $@

test-containers: $(STAMP)
	HOPLINE_DOCKER='$(DOCKER)' HOPLINE_IMAGE_PREFIX='$(IMAGE_PREFIX)' HOPLINE_IMAGE_TAG='$(IMAGE_TAG)' \
	  $(TEST_ENV) $(BIN)/python -m pytest -m containers $(PYTEST_ARGS)

golden: $(STAMP)
	$(BIN)/hopline compile -o tests/pipelines/golden/retraining.yaml --image-prefix registry.example/hopline --image-tag golden

# A new environment, without the constraints, is asked what it got. torch keeps its pin: its wheel decides what hardware runs.
constraints:
	folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	  $(PYTHON) -m venv "$$folder"; \
	  "$$folder/bin/python" -m pip install --quiet torch==2.13.0 -e '.[pipelines,cluster,test,dev,bench]'; \
	  "$$folder/bin/python" -m pip install --quiet --no-deps pykeen==1.11.1; \
	  { sed -n '/^#/p' constraints.txt; \
	    "$$folder/bin/python" -m pip freeze --exclude-editable | sed 's/+cpu$$//'; } > constraints.txt.new
	mv constraints.txt.new constraints.txt

bench: $(STAMP)
	@for script in $(wildcard benchmarks/*.py); do echo "== $$script"; $(BIN)/python "$$script" $(ARGS); done

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache local_outputs
	rm -f docker/wheelhouse/*.whl docker/wheelhouse/.filled docker/wheelhouse/requirements.txt
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
