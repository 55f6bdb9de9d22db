"""The golden day, run and compared with what is written down (``make golden``), or written down anew.

    python -m tests.golden.run [--write] [PART …]    # slices, own, artefacts, …: the names of DAYS

The last bits of a number are those of one kind of processor: on another the day is skipped, and says so.
"""

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.golden.arithmetic import fingerprint
from tests.golden.day import DAYS, artefacts, numbers_of, prepared, rebuilt
from tests.golden.numbers import Lines, differences

FOLDER = Path(__file__).parent
PROCESSOR = FOLDER / "processor.json"
SHOWN = 20  # differences of one command


def file_of(day: str) -> Path:
    """Return where a day's numbers are written."""
    return FOLDER / f"{day}.json"


def _alone(task: tuple[str, list[str]], write: bool) -> list[str]:
    """Do one task in a process and a folder of its own; return what differs."""
    kind, names = task
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        prepared(place)
        try:
            if kind == "artefacts":
                return [line for name, old, new in rebuilt(names, place) for line in _told(name, old, new)]
            found = dict(numbers_of(kind, place))
        except RuntimeError as fault:
            return [str(fault)]
    if write:
        file_of(kind).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return []
    golden = json.loads(file_of(kind).read_text(encoding="utf-8")) if file_of(kind).exists() else {}
    every = dict.fromkeys([*golden, *found])
    return [line for name in every for line in _told(name, golden.get(name, {}), found.get(name, {}))]


def _told(name: str, golden: Lines, found: Lines) -> list[str]:
    differing = differences(golden, found)
    more = [f"{name}: and {len(differing) - SHOWN} more"] if len(differing) > SHOWN else []
    return [f"{name}: {line}" for line in differing[:SHOWN]] + more


def tasks(*, write: bool, parts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return what may run side by side, the longest first; artefacts are written down in ``figures/``."""
    names = [] if write else artefacts()
    halves = [("artefacts", half) for half in (names[0::2], names[1::2]) if half]
    first, *others = ((day, list[str]()) for day in DAYS)
    return [task for task in (first, *halves, *others) if not parts or task[0] in parts]


def main() -> int:
    """Return the exit code: 1 where a number is another."""
    write, own = "--write" in sys.argv, fingerprint()
    if write:
        PROCESSOR.write_text(json.dumps({"arithmetic": own}) + "\n", encoding="utf-8")
    elif not PROCESSOR.exists():
        print("nothing is written down yet: make golden-write")
        return 2
    elif own != (there := json.loads(PROCESSOR.read_text(encoding="utf-8"))["arithmetic"]):
        print(f"skipped: the golden numbers are of arithmetic {there}, this machine's is {own}")
        print("make golden-write writes them here; compare only with numbers of one machine")
        return 0
    chosen = tasks(write=write, parts=[given for given in sys.argv[1:] if given != "--write"])
    os.environ["OMP_NUM_THREADS"] = "1"
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        found = pool.imap(partial(_alone, write=write), chosen)
        differing = [line for lines in found for line in lines]
    count = sum(len(names or DAYS[day]) for day, names in chosen)
    print("\n".join(differing) or f"golden: the numbers of {count} commands and artefacts")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
