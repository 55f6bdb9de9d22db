"""Where the processor seconds of a command go: imports, checks, gradients of products, what is beside these.

    python benchmarks/where.py --json benchmarks/where.json [--row NAME]…

A row is a command of ``commands.py``, run here once in a process of its own, with clocks around functions of
the package. Seconds are charged to the innermost of them, so that they add up to the whole; products that a
check takes are the check's.
"""

import argparse
import importlib
import json
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Any

import commands
import machine

IMPORTS, CHECKS, ERRORS = "start and imports", "checks of the loss and its derivatives", "errors by sample"
WHOLE = (CHECKS, ERRORS)  # whatever they call is theirs
PLACES = {  # module:function ↦ what it does
    "fedscope.workflows.sources.problems:load": "network and samples",
    "fedscope.workflows.curvature.measure_curvature:result_name": CHECKS,
    "fedscope.landscape.operators.empirical_risk:LossOperator._graphs": CHECKS,
    "fedscope.landscape.operators.hessian_operator:Hessian._graph": "products: forward and gradient",
    "fedscope.landscape.operators.hessian_operator:Hessian._times": "products: second derivative",
    "fedscope.landscape.operators.batch_mean:BatchMean._sums": "products: sums and projections of batches",
    "fedscope.landscape.operators.product_cache:Journaled._kept": "products: kept in a file",
    "fedscope.landscape.spectral.krylov.lanczos:Lanczos.__init__": "Krylov basis",
    "fedscope.landscape.spectral.krylov.lanczos:Lanczos.step": "Krylov basis",
    "fedscope.landscape.spectral.eigenpairs:look": "certificate",
    "fedscope.landscape.spectral.krylov.lanczos:Lanczos.has_seen": "certificate",
    "fedscope.landscape.spectral.krylov.lanczos:Lanczos.residuals": "certificate",
    "fedscope.landscape.spectral.eigenpairs:eigenvalue_errors": "errors by batch, and bias",
    "fedscope.landscape.spectral.eigenpairs:told_by_sample": ERRORS,
    "fedscope.workflows.curvature.certified:trace": "trace, beside its products",
}
ROWS = ("hessian", "lambda_max", "gpt2-300")
PRODUCTS = "products: "


class Clock:
    """Processor seconds, charged to one thing at a time."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._at_work, self._since = ["the rest"], 0.0

    def _turn(self) -> None:
        now = time.process_time()
        self.seconds[self._at_work[-1]] += now - self._since
        self._since = now

    def charged(self, function: Callable[..., Any], what: str) -> Callable[..., Any]:
        """Return the function, whose seconds are charged to ``what``."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._at_work[-1] in WHOLE:
                return function(*args, **kwargs)
            self._turn()
            self._at_work.append(what)
            try:
                return function(*args, **kwargs)
            finally:
                self._turn()
                self._at_work.pop()

        return timed

    def set(self) -> None:
        """Put clocks around the places; those of the start so far are the imports'."""
        bootstrap: Any = importlib._bootstrap
        bootstrap._find_and_load = self.charged(bootstrap._find_and_load, IMPORTS)
        for place, what in PLACES.items():
            module, _, name = place.partition(":")
            *inside, last = name.split(".")
            owner: Any = importlib.import_module(module)
            for part in inside:
                owner = getattr(owner, part)
            setattr(owner, last, self.charged(getattr(owner, last), what))
        self._turn()
        self.seconds = defaultdict(float, {IMPORTS: sum(self.seconds.values())})


def here(words: list[str]) -> dict[str, float]:
    """Run a command in this process and return its seconds."""
    from fedscope.cli.main import call

    clock = Clock()
    clock.set()
    with redirect_stdout(sys.stderr):
        if call(words):
            raise SystemExit("the command failed")
    clock._turn()
    return dict(clock.seconds)


def measured(name: str) -> dict[str, Any]:
    """Return where the seconds of a row went, in a process of its own and a new folder."""
    row = commands.ROWS[name]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        shutil.copytree(commands.ROOT / "checkpoints" / commands.A, folder / "checkpoints" / commands.A)
        if row.prepared:
            script, *rest = row.prepared.split()
            commands.ended([str(commands.HERE / script), *rest], folder, commands.ROOT)
        said = folder / "said"
        commands.ended(
            [str(Path(__file__).resolve()), "--here", *row.command.split()], folder, commands.ROOT, said
        )
        seconds = json.loads(said.read_text().splitlines()[-1])
    whole = sum(seconds.values())
    products = sum(spent for what, spent in seconds.items() if what.startswith(PRODUCTS))
    return {"command": f"fedscope {row.command}", "seconds": seconds, "products": products / whole}


def main() -> None:
    """Run the rows and write the file."""
    if sys.argv[1:2] == ["--here"]:
        print(json.dumps(here(sys.argv[2:])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("where.json"))
    parser.add_argument("--row", action="append", choices=ROWS)
    given = parser.parse_args()
    rows = json.loads(given.json.read_text())["rows"] if given.json.exists() else {}
    for name in given.row or ROWS:
        rows[name] = {**measured(name), "machine": machine.record(None)}
        print(name, json.dumps(rows[name]["seconds"]), flush=True)
        content = {"schema": "fedscope/benchmark-where/1", "rows": rows}
        given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
