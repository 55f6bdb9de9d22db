"""The authors' own programs beside fedscope: the same weights after each of two rounds, or why not.

    python benchmarks/authors/compare.py --programs FOLDER --json benchmarks/authors.json

Programs are cloned into FOLDER at the commits of ``rows.toml``, unless the folder of that repository is
there; nothing of them is kept here. Each row runs a method in float64 on both sides, from the same initial
weights on the same batches. Where the two differ and the row has patches, it runs with them too: what ends a
difference is its cause.
"""

import argparse
import json
import runpy
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from problem import Problem, State, apart, posed, trained
from programs import TABLE, Patch, Program, Row, Table, clone, copied, read, running

from fedscope.process import set_up

SCHEMA = "fedscope/benchmark-authors/1"


def theirs(problem: Problem, row: Row, program: Program, root: Path, patches: list[Patch]) -> list[State]:
    """Return the global model after every round of the program."""
    module, _, name = program.adapter.partition(":")
    run = getattr(import_module(f"adapters.{module}"), name or "run")
    with TemporaryDirectory() as folder:
        place = copied(program, root, patches, Path(folder) / program.name)
        with running(place, program.stubs):
            found: list[State] = run(problem, row.entry)
    return found


def compared(row: Row, program: Program, root: Path) -> dict[str, Any]:
    """Return a row's result: how far apart the two are after each round, as published and patched."""
    problem, federation = posed(row.method, row.options, {"reading": row.reading, **row.settings})
    start, ours = problem.module.state_dict(), trained(federation)

    def far(patches: list[Patch]) -> list[float]:
        states = theirs(problem.again(), row, program, root, patches)
        return [apart(start, a, b) for a, b in zip(ours, states, strict=True)]

    return {
        "method": row.method,
        "program": row.program,
        "entry": row.entry,
        "variant": row.variant,
        "reading": row.reading,
        "options": row.options,
        "settings": row.settings,
        "apart": far([]),
        "patched": far(row.patches) if row.patches else None,
        "why": row.why,
    }


def key(row: Row | dict[str, Any]) -> tuple[str, str, str]:
    """Return what tells a row from all others."""
    fields = row if isinstance(row, dict) else vars(row)
    return fields["method"], fields["program"], fields["variant"]


def record(table: Table, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the record of the table's rows, in its order."""
    order = [key(row) for row in table.rows]
    kept = {key(result): result for result in results}
    programs = {p.name: {"repository": p.repository, "commit": p.commit, "licence": p.licence} for p in
                table.programs.values()}  # fmt: skip
    return {
        "schema": SCHEMA,
        "machine": machine(),
        "programs": programs,
        "rows": [kept[one] for one in order if one in kept],
        "absent": table.absent,
    }


def machine() -> dict[str, object]:
    """Return where and with what this runs."""
    return dict(runpy.run_path(str(Path(__file__).parents[1] / "machine.py"))["record"](None))


def main() -> None:
    """Compare the chosen rows, print how far apart they are, and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=Path, required=True, help="where the programs are, or will be")
    parser.add_argument("--json", type=Path, required=True, help="the record; its other rows are kept")
    parser.add_argument("--only", nargs="*", help="only these methods or programs")
    parser.add_argument("--table", type=Path, default=TABLE, help="another table of rows")
    options = parser.parse_args()
    set_up(torch.device("cpu"), 1)
    table = read(options.table)
    results = json.loads(options.json.read_text())["rows"] if options.json.exists() else []
    for row in table.rows:
        if options.only and not {row.method, row.program} & set(options.only):
            continue
        program = table.programs[row.program]
        found = compared(row, program, clone(program, options.programs))
        results.append(found)
        print(" / ".join(filter(None, key(row))), *(f"{d:.1e}" for d in found["apart"]), end=" ")
        print("patched", *(f"{d:.1e}" for d in found["patched"])) if row.patches else print()
        options.json.write_text(json.dumps(record(table, results), indent=1) + "\n")


if __name__ == "__main__":
    main()
