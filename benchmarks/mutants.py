"""Mutation testing on a seeded sample: small faults put into the code, and which of them the tests notice.

    make mutants [TIER=fast]
    python benchmarks/mutants.py [--count 300] [--seed 0] [--jobs 2] [--tier all] [--json FILE] …

Cosmic Ray (https://cosmic-ray.readthedocs.io) knows the faults: an operator turned, a number changed, a
condition negated, a loop left out. A line is drawn first and then a fault for it, so that arithmetic, for
which there are the most faults, does not outweigh conditions. Lines and faults are drawn by their hash with
the seed: where the code stays, the sample stays. Each worker has a copy of the committed tree and forks a
process that has imported PyTorch.

A mutant is tried on the tests of the fast tier that execute its line, the cheapest first; which these are is
recorded by one run of that tier under Coverage.py, kept in build/ for the commit. What survives is tried on
the tests of its module and its room, which may execute the line in a process of their own, and with
``--tier all`` on all tests of every file that has one of the first (tests/tiers.py). With ``--again FILE
--later`` what survived the fast tier in a file is tried on its module's tests, and on the rest tier of its
room and of the files that import it. What takes three times the processor time that its tests are known to
take is killed by time. Survivors are listed with differences.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from difflib import unified_diff
from functools import partial
from itertools import chain
from pathlib import Path

import parso.python.tree  # noqa: F401  before Cosmic Ray, whose operators import it in a circle
import pytest
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from mutant_tests import ROOT, Stage, later_stages, recorded, stages

ROOMS = ("landscape", "records", "checkpoints", "workflows", "reproduce")
NO_TESTS = 5  # pytest's exit code where the tier has none of a file
LEFT_OUT = (
    "BitOr", "ExceptionReplacer", "RemoveDecorator",  # `X | None`, and what fails at import
    "_Eq_Is", "_NotEq_IsNot", "_Is_Eq", "_IsNot_NotEq",  # the same, of small numbers, short texts and None
)  # fmt: skip
NOTHING = ("@dataclass", "if TYPE_CHECKING", "strict=True", "    *,")  # what no working code can show


@dataclass(frozen=True)
class Mutant:
    """One fault: which, and at which of the places that the module has for it."""

    module: str  # below the root
    line: int
    fault: str
    occurrence: int


def mutants(module: Path) -> Iterator[Mutant]:
    """Yield every fault that a module can have."""
    nodes = list(ast_nodes(get_ast_from_path(module)))
    lines = module.read_text(encoding="utf-8").splitlines()
    for name in plugins.operator_names():
        operator = plugins.get_operator(name)
        if operator.arguments() or any(word in name for word in LEFT_OUT):
            continue
        places = chain.from_iterable(operator().mutation_positions(node) for node in nodes)
        for occurrence, ((line, _), _) in enumerate(places):
            if any(word in lines[line - 1] for word in NOTHING):
                continue
            yield Mutant(module.relative_to(ROOT).as_posix(), line, name, occurrence)


def sample(count: int, seed: int) -> list[Mutant]:
    """Draw places in the rooms' code, and a fault for each, by their hash with the seed."""
    places: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for room in ROOMS:
        for module in sorted((ROOT / "src" / "fedscope" / room).rglob("*.py")):
            for mutant in mutants(module):
                places[mutant.module, mutant.line].append(mutant)
    texts = {module: (ROOT / module).read_text(encoding="utf-8").splitlines() for module, _ in places}

    def drawn(place: tuple[str, int], fault: str = "") -> str:
        text = texts[place[0]][place[1] - 1].strip()
        return hashlib.sha256(f"{seed} {place[0]} {text} {fault}".encode()).hexdigest()

    chosen = sorted(places, key=drawn)[:count]
    return [
        sorted(places[place], key=lambda one: drawn((one.module, one.line), one.fault))[0] for place in chosen
    ]


def mutated(mutant: Mutant, root: Path) -> tuple[str, str]:
    """Return a module's text before and after the fault."""
    before = (root / mutant.module).read_text(encoding="utf-8")
    return before, mutate_code(before, plugins.get_operator(mutant.fault)(), mutant.occurrence)


def difference(before: str, after: str) -> str:
    """Return the lines that a fault changes."""
    changed = unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), n=0)
    return "".join(line for line in changed if line[:2] not in ("--", "++", "@@"))


def tried(mutant: Mutant, copy: Path, tier: str, lines: Path | None) -> dict[str, object]:
    """Put the fault into the copy, run the tests, and take it out again."""
    module, began = copy / mutant.module, time.monotonic()
    before, after = mutated(mutant, copy)
    module.write_text(after, encoding="utf-8")
    found = "survived"
    near = stages(mutant.module, mutant.line, tier, lines) if lines else later_stages(mutant.module)
    for stage in near:
        code = _run(stage, copy) if stage.files else 0
        if code:
            found = "killed" if code == 1 else "killed at import" if code > 0 else "killed by time"
            break
    module.write_text(before, encoding="utf-8")
    about = {"outcome": found, "difference": difference(before, after)}
    return {**asdict(mutant), **about, "seconds": time.monotonic() - began}


def identity(result: dict[str, str]) -> tuple[str, str, str]:
    """Return what tells a tried mutant from others, wherever its line has moved."""
    return result["module"], result["fault"], result["difference"]


class _Chosen:
    """Runs the tests of a stage alone, in its order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.places = {test: place for place, test in enumerate(tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self.places]
        items[:] = sorted(chosen, key=lambda item: self.places[item.nodeid])


def _run(stage: Stage, copy: Path) -> int:
    """Return pytest's exit code, of a forked process; 0 of no test, below 0 where it took too long."""
    most = 60 + 3 * int(sum(stage.tests.values()))
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.chdir(copy)
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        sys.path[:0] = [str(copy / "src"), str(copy)]
        os.environ["PYTHONPATH"] = f"{copy / 'src'}:{copy}"
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        plugins = [_Chosen(stage.chosen)] if stage.chosen else []
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:cov", "--tier", stage.tier]
        os._exit(pytest.main([*options, *stage.files], plugins=plugins))
    end = time.monotonic() + 10 * most  # of waiting that takes no processor time
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return -1
        time.sleep(0.05)
    code = os.waitstatus_to_exitcode(ended[1])
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return -1
    return 3 if code < 0 else 0 if code == NO_TESTS else code  # 3: it crashed


_copies: list[Path] = []


def _prepare(folder: str) -> None:
    """Give this worker a copy of the committed tree, and what every test imports."""
    copy = Path(tempfile.mkdtemp(dir=folder))
    subprocess.run(["git", "clone", "-q", str(ROOT), str(copy)], check=True)
    _copies.append(copy)
    import matplotlib.figure  # noqa: F401
    import pydantic  # noqa: F401
    import torch

    torch.set_num_threads(1)


def _work(tier: str, lines: Path | None, mutant: Mutant) -> dict[str, object]:
    return tried(mutant, _copies[0], tier, lines)


def report(results: list[dict[str, object]]) -> str:
    """Return the score, and the survivors with their differences, as Markdown."""
    survived = [result for result in results if result["outcome"] == "survived"]
    score = 1 - len(survived) / len(results)
    lines = [f"{len(results)} mutants, {len(survived)} survived: score {100 * score:.1f} %", ""]
    for result in survived:
        lines += [
            f"- `{result['module']}:{result['line']}` {result['fault']}",
            "",
            "      ".join(["", *str(result["difference"]).splitlines(keepends=True)]),
        ]
    return "\n".join(lines)


def main() -> None:
    """Try the sample, and print the score and the survivors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tier", choices=("fast", "all"), default="all", help="the tests that are tried")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--again", type=Path, metavar="FILE", help="take over what was killed in this JSON")
    parser.add_argument("--later", action="store_true", help="try what survived there on the rest alone")
    parser.add_argument("--only", type=int, metavar="N", help="the N-th of the sample alone")
    asked = parser.parse_args()
    lines = None if asked.later else recorded()
    chosen = sample(asked.count, asked.seed)
    chosen = chosen if asked.only is None else [chosen[asked.only]]
    known = json.loads(asked.again.read_text(encoding="utf-8")) if asked.again else []
    killed = {identity(one): one for one in known if one["outcome"] != "survived"}
    tried_before = {identity(one) for one in known}
    before = [killed.get((one.module, one.fault, difference(*mutated(one, ROOT)))) for one in chosen]
    chosen = [one for one, found in zip(chosen, before, strict=True) if found is None]
    if asked.later:
        of = {one: (one.module, one.fault, difference(*mutated(one, ROOT))) for one in chosen}
        chosen = [one for one in chosen if of[one] in tried_before]
    folder, results = tempfile.mkdtemp(prefix="mutants-"), [found for found in before if found]
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(asked.jobs, context, initializer=_prepare, initargs=(folder,)) as pool:
            for number, result in enumerate(
                pool.map(partial(_work, asked.tier, lines), chosen), len(results)
            ):
                results.append(result)
                print(
                    f"{number} {result['outcome']}: {result['module']}:{result['line']} {result['fault']}",
                    flush=True,
                )
                if asked.json:
                    asked.json.write_text(json.dumps(results, indent=1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(report(results))


if __name__ == "__main__":
    main()
