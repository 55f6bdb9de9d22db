"""Each import contract notices an import that it forbids, at every one of its floors."""

import copy
from collections.abc import Iterator
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter import api, configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract
from importlinter.domain.contract import Contract

KINDS: dict[str, type[Contract]] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
}
configuration.configure()
CONFIGURATION = api.read_configuration(str(Path(__file__).parents[1] / "pyproject.toml"))


def forbidden_imports(options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield pairs (importer, imported) that a contract must refuse: one at least for each of its lines."""
    if options["type"] == "acyclic_siblings":
        yield "fedscope.errors", "fedscope.cli"
    if options["type"] == "forbidden":
        for source in options["source_modules"]:
            yield from ((source, module) for module in options["forbidden_modules"])
    if options["type"] == "independence":
        yield from permutations(options["modules"], 2)
    if options["type"] == "layers":
        (container,) = options.get("containers", [""])
        rows = [
            [f"{container}.{name.strip()}".strip(".") for name in row.split("|")] for row in options["layers"]
        ]
        for upper, lower in pairwise(rows):
            yield from ((below, above) for below in lower for above in upper)
        for row in rows:
            yield from permutations(row, 2)


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("fedscope", include_external_packages=True, exclude_type_checking_imports=True)


@pytest.mark.parametrize("options", CONFIGURATION["contracts_options"], ids=lambda options: options["name"])
def test_a_forbidden_import_breaks_the_contract(graph: grimp.ImportGraph, options: dict[str, Any]) -> None:
    contract = KINDS[options["type"]](options["name"], CONFIGURATION["session_options"], options)
    assert contract.check(graph, verbose=False).kept
    refused = list(forbidden_imports(options))
    assert refused
    for importer, imported in refused:
        broken = copy.deepcopy(graph)
        broken.add_import(importer=importer, imported=imported)
        assert not contract.check(broken, verbose=False).kept, (importer, imported)
