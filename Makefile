# Each target is complete from a fresh clone: it makes .venv and installs what it needs first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
DEMO := .venv/demo

.PHONY: demo test test-rest test-all test-real papers durations golden golden-write docs notebooks pictures lint check
.PHONY: mutants sbom clean

demo: $(DEMO)
	$(BIN)/fedscope demo

# Every estimator, law and command, in minutes; `test-rest` is what that left out, `test-all` both at once.
PYTEST := $(BIN)/pytest -n auto --dist worksteal
test: $(STAMP)
	$(PYTEST) --tier fast

test-rest: $(STAMP)
	$(PYTEST) --tier rest

test-all: $(STAMP)
	$(PYTEST)

# What each test costs, into tests/durations.json: the dearest files are started first by it.
durations: $(STAMP)
	mkdir -p build && rm -f build/durations.jsonl
	FEDSCOPE_DURATIONS=build/durations.jsonl $(PYTEST)
	$(BIN)/python -m tests.costs build/durations.jsonl

# The numbers of commands and artefacts against those of tests/golden, on the processor that wrote these.
golden: $(STAMP)
	$(BIN)/python -m tests.golden.run

golden-write: $(STAMP)
	$(BIN)/python -m tests.golden.run --write

# The tests that `make test` skips without the real CIFAR files: FEDSCOPE_DATA=FOLDER make test-real
test-real: $(STAMP)
	$(BIN)/pytest -m real_data

# The weights of the published runs, from the repository's history: 233 MB, for measuring them anew.
papers: $(STAMP)
	$(BIN)/fedscope runs pull --all git: --registry checkpoints/papers

# The site, in build/site: index.html opens from the disk. A link that leads nowhere ends the build.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The pictures of the pages, by the pages' own code; they are committed.
pictures: $(STAMP)
	PYTHONPATH=docs $(BIN)/python -m builder.pictures

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

# torch first and alone: its pinned CPU build is then what every later requirement finds.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e '.[train,report]'
	touch $@

$(STAMP): $(DEMO)
	$(PIP) -e '.[test]'
	touch $@

# Small faults put into the committed code, 300 drawn by a seed: which of them the tests notice, all of them or,
# with TIER=fast, those of `make test`.
TIER ?= all
mutants: $(STAMP)
	$(PIP) cosmic-ray pytest-cov
	$(BIN)/python benchmarks/mutants.py --tier $(TIER) --json build/mutants-$(TIER).json

# The notebooks, executed from their sources and stored with what they print and draw.
notebooks: $(STAMP)
	$(PIP) -e '.[notebooks]'
	rm -rf notebooks/runs notebooks/clients notebooks/gallery  # what an earlier execution left
	cd notebooks && PATH="$(abspath $(BIN)):$$PATH" $(abspath $(BIN))/jupytext --quiet --to ipynb --set-kernel python3 --execute *.py

# What an installation with the extras consists of, as CycloneDX; two that install the same differ in no byte.
EXTRAS := train,report,hub,tensorboard,wandb,mlflow
sbom: $(STAMP)
	$(PIP) cyclonedx-bom
	$(PYTHON) -m venv --clear build/sbom
	build/sbom/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	build/sbom/bin/pip install --quiet --disable-pip-version-check -c constraints.txt '.[$(EXTRAS)]'
	rm build/sbom/lib/python*/site-packages/fedscope-*/direct_url.json  # the folder on this machine
	$(BIN)/cyclonedx-py environment --output-reproducible --of JSON -o build/fedscope.cdx.json build/sbom/bin/python

clean:
	rm -rf .venv demo build dist
