# Each target is complete from a fresh clone: it makes .venv and installs what it needs first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed

.PHONY: demo test test-real papers docs notebooks pictures lint check mutants sbom clean

demo: $(STAMP)
	$(BIN)/fedscope demo

test: $(STAMP)
	$(BIN)/pytest -n auto --dist worksteal

# The tests that `make test` skips without the real CIFAR files: FEDSCOPE_DATA=FOLDER make test-real
test-real: $(STAMP)
	$(BIN)/pytest -m real_data

# The weights of the published runs, from the repository's history: 145 MB, for measuring them anew.
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
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

# Small faults put into the committed code, 300 drawn by a seed: which of them the tests notice.
mutants: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt cosmic-ray
	$(BIN)/python benchmarks/mutants.py --json build/mutants.json

# The notebooks, executed from their sources and stored with what they print and draw.
notebooks: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[notebooks]'
	cd notebooks && PATH="$(abspath $(BIN)):$$PATH" $(abspath $(BIN))/jupytext --quiet --to ipynb --set-kernel python3 --execute *.py

# What an installation with the extras consists of, as CycloneDX; two that install the same differ in no byte.
EXTRAS := train,report,hub,tensorboard,wandb,mlflow,lightning
sbom: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt cyclonedx-bom
	$(PYTHON) -m venv --clear build/sbom
	build/sbom/bin/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	build/sbom/bin/pip install --quiet --disable-pip-version-check -c constraints.txt '.[$(EXTRAS)]'
	rm build/sbom/lib/python*/site-packages/fedscope-*/direct_url.json  # the folder on this machine
	$(BIN)/cyclonedx-py environment --output-reproducible --of JSON -o build/fedscope.cdx.json build/sbom/bin/python

clean:
	rm -rf .venv demo build dist
