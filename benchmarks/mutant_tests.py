"""Which tests are tried on a fault in a line of the package: the nearest first, by what is known of each.

The tests that execute a line are those of the fast tier that did so in one run under Coverage.py, kept in
``build/`` for the commit (:func:`recorded`). What a test costs is what ``tests/durations.json`` says.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).parents[1]
MOST = 600.0  # processor seconds that the tests of one stage are known to take together


@dataclass(frozen=True)
class Stage:
    """Tests of a tier, or files of them whole, in the order of trying, each with its processor seconds."""

    tier: str
    tests: Mapping[str, float]

    @property
    def files(self) -> list[str]:
        """The files that have them."""
        return sorted({test.partition("::")[0] for test in self.tests})

    @property
    def chosen(self) -> list[str] | None:
        """The single tests; None where the files are tried whole."""
        single = [test for test in self.tests if "::" in test]
        return single or None


def stages(module: str, line: int, tier: str, lines: Path) -> Iterator[Stage]:
    """Yield the tests to try on a fault in a line of a module, the nearest first."""
    seen = executing(module, line, lines)
    yield Stage("fast", affordable(seen))
    path = Path(module).relative_to("src/fedscope")
    own = Path("tests") / path.parent / f"test_{path.stem}.py"
    room = next(folder for folder in (Path("tests") / path).parents if (ROOT / folder).is_dir())
    files = {file.relative_to(ROOT).as_posix() for file in (ROOT / room).rglob("test_*.py")}
    if tier == "all":
        files |= {test.partition("::")[0] for test in seen}
    if (ROOT / own).exists():
        yield Stage(tier, affordable([own.as_posix()]))
    yield Stage(tier, affordable(files - {own.as_posix()}))


def later_stages(module: str) -> Iterator[Stage]:
    """Yield the tests to try on what the fast tier did not notice, which may have gained some since.

    Those are all of its module's, what the rest has of its room and of the files that import the module, and
    the fast ones of the room.
    """
    path = Path(module).relative_to("src/fedscope")
    own = Path("tests") / path.parent / f"test_{path.stem}.py"
    room = next(folder for folder in (Path("tests") / path).parents if (ROOT / folder).is_dir())
    near = {file.relative_to(ROOT).as_posix() for file in (ROOT / room).rglob("test_*.py")} - {own.as_posix()}
    users = (file for file in (ROOT / "tests").rglob("test_*.py") if _imports(file, path.stem))
    far = {file.relative_to(ROOT).as_posix() for file in users} - {own.as_posix()}
    if (ROOT / own).exists():
        yield Stage("all", affordable([own.as_posix()]))
    yield Stage("rest", affordable(near | far))
    yield Stage("fast", affordable(near))


def _imports(file: Path, stem: str) -> bool:
    return bool(re.search(rf"^ *(from|import) .*\b{stem}\b", file.read_text(encoding="utf-8"), re.MULTILINE))


def executing(module: str, line: int, lines: Path) -> set[str]:
    """Return the tests that execute a line, or its module where the line is executed at import."""
    data = CoverageData(str(lines))
    data.read()
    contexts = data.contexts_by_lineno(str(ROOT / module))
    tests = {at: {name.rpartition("|")[0] for name in names if name} for at, names in contexts.items()}
    for at in range(line, max(0, line - 5), -1):  # its statement may begin above it
        if at in tests:
            return tests[at] or set().union(*tests.values())
    return set()


def affordable(tests: Iterable[str]) -> dict[str, float]:
    """Return the cheapest tests or files, each with what it costs, that take up to `MOST` together."""
    names = list(tests)
    of_function = Counter(map(_function, names))  # which stands for all its parameters in what is known
    cost = {test: _known(_function(test)) / of_function[_function(test)] for test in names}
    chosen, seconds = dict[str, float](), 0.0
    for test in sorted(names, key=lambda test: (cost[test], test)):
        seconds += cost[test]
        if chosen and seconds > MOST:
            break
        chosen[test] = cost[test]
    return chosen


def _function(test: str) -> str:
    return test.partition("[")[0]


@cache
def _costs() -> dict[str, dict[str, float]]:
    known: dict[str, dict[str, float]] = json.loads((ROOT / "tests" / "durations.json").read_text("utf-8"))
    return known


def _known(test: str) -> float:
    """Return the processor seconds of a file, or of a function of it."""
    file, _, name = test.partition("::")
    known = _costs().get(file, {})
    return known.get(name, 0.05) if name else sum(known.values())


def recorded() -> Path:
    """Return the file of which tests of the fast tier execute which line, made where the commit has none."""
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True)
    if changed.stdout:
        raise SystemExit("commit first: faults are put into the committed code")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    file = ROOT / "build" / f"lines-{commit.stdout.strip()}.coverage"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        unfinished = file.with_suffix(".unfinished")
        run = "-n auto --dist worksteal --tier fast --cov=src/fedscope --cov-context=test --cov-report="
        keeps_it = "tests/checkpoints/test_failing_disk.py::test_an_index"  # from SQLite, which has lines
        command = [sys.executable, "-m", "pytest", *run.split(), f"--deselect={keeps_it}"]
        environment = {**os.environ, "COVERAGE_FILE": str(unfinished)}
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        unfinished.rename(file)
    return file
