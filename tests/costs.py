"""What each test costs: processor seconds of its process and all its children, in ``tests/durations.json``.

    make durations
    FEDSCOPE_DURATIONS=FILE pytest …    # appends a line for each test
    python -m tests.costs FILE          # and makes the committed file of the lines

The tests of the dearest files are started first by it.
"""

import json
import math
import os
import sys
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("durations.json")
LEAST = 0.05  # seconds; cheaper tests are one line of their file together
CHEAPER = "cheaper"
Costs = dict[str, dict[str, float]]  # file → function → seconds of all its parameters
_TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds() -> float:
    """Return what this process and its children, those that have ended too, have used."""
    own = os.times()
    return own.user + own.system + own.children_user + own.children_system + sum(map(_used, _below("self")))


def _below(pid: str) -> Iterator[str]:
    """Yield the process numbers of living children, and of theirs; none where the system does not tell."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in children:
            yield child
            yield from _below(child)


def _used(pid: str) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICK


class Recorder:
    """Appends the name and the cost of each test to a file that all processes of a run share."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        start = processor_seconds()
        result = yield
        line = json.dumps([item.nodeid, max(0.0, processor_seconds() - start)])
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        return result


def costs(lines: Iterable[str]) -> Costs:
    """Return the costs by file and function; of a test that ran more than once those of its dearest run."""
    dearest: dict[str, float] = defaultdict(float)
    for line in lines:
        nodeid, seconds = json.loads(line)
        dearest[nodeid] = max(dearest[nodeid], seconds)
    found: Costs = defaultdict(lambda: defaultdict(float))
    for nodeid, seconds in dearest.items():
        file, _, test = nodeid.partition("::")
        found[file][test.partition("[")[0]] += seconds
    return {file: _rounded(tests) for file, tests in sorted(found.items())}


def _rounded(tests: dict[str, float]) -> dict[str, float]:
    kept = {test: round(seconds, 2) for test, seconds in sorted(tests.items()) if seconds >= LEAST}
    cheaper = round(sum(seconds for seconds in tests.values() if seconds < LEAST), 2)
    return {**kept, CHEAPER: cheaper} if cheaper else kept


def dearest_first(items: list[pytest.Item]) -> None:
    """Order tests by what their files cost, each file as it is; what is not known may be dear."""
    known = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    of_file = {file: sum(tests.values()) for file, tests in known.items()}
    items.sort(key=lambda item: -of_file.get(item.nodeid.partition("::")[0], math.inf))


if __name__ == "__main__":
    found = costs(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
