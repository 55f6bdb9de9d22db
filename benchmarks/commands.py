"""What a user types: processor seconds and peak memory of whole commands, here and at an older commit.

    python benchmarks/commands.py --json benchmarks/commands.json [--before COMMIT] [--turns 3] [--row NAME]…

A row is some commands, of which the last is timed: a process of its own, with the start of Python, its
imports and its own children in it (``wait4``). Each turn begins in a new folder with the two reference runs,
so that nothing is found that an earlier turn kept. With ``--before`` the same is done with that commit's
package and its own reference runs, turn by turn beside ours; peers are scripts of ``contestants/``. Processor
seconds are of all threads together. Rows that are not named stay as they are in the file.
"""

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import machine

HERE = Path(__file__).parent.resolve()
ROOT = HERE.parent
A, B = "reference-fedavg", "reference-fedavg+man"
SIXTEEN = "train --name sixteen --clients 16 --rounds 1 --epochs 1 --model resnet_digits --seed 0"
GPT2 = "--model command_networks:gpt2 --data command_networks:text --threads 1"
TINY = (
    "train --clients 100 --participation 1 --rounds 3 --epochs 1 --model mlp_digits --partition iid --seed 0"
)


@dataclass(frozen=True)
class Row:
    """A command, and what stands beside it."""

    says: str  # what is asked for
    command: str
    earlier: tuple[str, ...] = ()  # commands before it, which are not timed
    prepared: str = ""  # a script before it, with arguments
    peers: Mapping[str, str] | None = None  # name ↦ script with arguments
    new: bool = False  # not known to the older commit
    beside: str = ""  # a command of our own, timed too


ROWS = {
    "hessian": Row("λ_max and trace of the bundled digits' run, cold", f"hessian {A}"),
    "lambda_max": Row("λ_max alone of it, cold", f"hessian {A} --only lambda_max", new=True),
    "again": Row("the same command again", f"hessian {A}", (f"hessian {A}",)),
    "clients": Row("H_N and H_D of its four clients", f"hessian {A} --clients"),
    "sixteen": Row(
        "H_N and H_D of 16 clients to 10 %", "hessian sixteen --clients --client-rtol 0.1", (SIXTEEN,)
    ),
    "landscape": Row("landscapes of two models, 41 × 41", f"plot-landscape {A} {B}"),
    "report": Row(
        "a report after `hessian` and `plot-landscape`", f"report {A} {B}",
        (f"hessian {A} {B}", f"plot-landscape {A} {B}"),
    ),
    "tiny": Row(
        "three rounds of 100 tiny clients, two processes", f"{TINY} --workers 2", beside=f"{TINY} --workers 1"
    ),
    **{
        f"gpt2-{steps}": Row(
            f"λ_max of a GPT-2 of 2 million parameters after {steps} steps",
            f"hessian gpt2.pt --only lambda_max {GPT2}", prepared=f"command_networks.py {steps} gpt2.pt",
            peers={"pyhessian": "contestants/command_peer.py gpt2.pt"}, new=True,
        )
        for steps in (20, 100, 300)
    },
    "gpt2-small": Row(
        "λ_max to 1e-2 of GPT-2 small (124 million parameters), two sequences of 256 tokens",
        "hessian --model hf:base --data text:text:256 --tol 1e-2 --only lambda_max --threads 2",
        prepared="large_jobs.py gpt2 .", new=True,
        peers={"pyhessian": f"contestants/large_peer.py pyhessian . {12 << 30} 60 2"},
    ),
}  # fmt: skip


def ended(words: list[str], folder: Path, source: Path, said: Path | None = None) -> dict[str, float]:
    """Run Python with arguments in a folder and a package's source; return what it took."""
    path = os.pathsep.join([str(source / "src"), str(HERE)])
    environment = {**os.environ, "PYTHONPATH": path, "HOME": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begun = time.monotonic()
    with (said or Path(os.devnull)).open("w") as out, (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, *words], cwd=folder, env=environment, stdout=out, stderr=errors
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(
            f"{' '.join(words)} ended with {process.returncode}:\n{(folder / 'errors').read_text()}"
        )
    elapsed = time.monotonic() - begun
    return {"seconds": used.ru_utime + used.ru_stime, "elapsed": elapsed, "peak": used.ru_maxrss * 1024}


def turn(row: Row, source: Path, *, ours: bool) -> dict[str, Any]:
    """Return what a row took once, in a new folder."""
    with tempfile.TemporaryDirectory() as place:
        folder, found = Path(place), {}
        for name in (A, B):
            shutil.copytree(source / "checkpoints" / name, folder / "checkpoints" / name)
        if row.prepared:
            ended([str(HERE / row.prepared.split()[0]), *row.prepared.split()[1:]], folder, source)
        for command in row.earlier:
            ended(["-m", "fedscope", *command.split()], folder, source)
        words = row.command.split()
        told = words[0] in ("hessian", "train")
        said = folder / "said.json"
        found["command"] = ended(
            ["-m", "fedscope", *words, *(("--json", "-") if told else ())], folder, source, said
        )
        if words[0] == "hessian":
            record = json.loads(said.read_text())
            found["record"] = {
                "lambda_max": record["lambda_max"]["value"],
                "residual": record["lambda_max"]["residual"],
                "products": record["matvecs"],
            }
        if row.beside:
            found["beside"] = ended(
                ["-m", "fedscope", *row.beside.split(), "--name", "other"], folder, source
            )
        for name, script in (row.peers or {}).items() if ours else ():
            script_path, *rest = script.split()
            took = ended(
                [str(HERE / script_path), *rest, str(found["record"]["lambda_max"])], folder, source, said
            )
            found[name] = {**json.loads(said.read_text().splitlines()[-1]), **took}
    return found


def merged(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians of the turns, with all their seconds."""
    found: dict[str, Any] = {}
    for name in turns[0]:
        parts = [one[name] for one in turns]
        if name == "record":
            found[name] = parts[-1]
            continue
        seconds, elapsed = ([part[kind] for part in parts] for kind in ("seconds", "elapsed"))
        found[name] = {**parts[-1], "seconds": median(seconds), "elapsed": median(elapsed), "all": seconds}
    return found


def main() -> None:
    """Run the rows and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, default=Path("commands.json"))
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--row", action="append", choices=[*ROWS])
    given = parser.parse_args()
    rows = json.loads(given.json.read_text())["rows"] if given.json.exists() else {}
    with tempfile.TemporaryDirectory() as place:
        older = Path(place) / "older"
        if given.before:
            words = ["git", "worktree", "add", "-q", "--detach", str(older), given.before]
            subprocess.run(words, cwd=ROOT, check=True)
        for source in (ROOT, *((older,) if given.before else ())):  # as after the first command
            compileall.compile_dir(source / "src", quiet=1)
        try:
            for name in given.row or [*ROWS]:
                row, turns, before = ROWS[name], list[dict[str, Any]](), list[dict[str, Any]]()
                for _ in range(given.turns):
                    turns.append(turn(row, ROOT, ours=True))
                    if given.before and not row.new:
                        before.append(turn(row, older, ours=False))
                found = {"says": row.says, "command": f"fedscope {row.command}", "now": merged(turns)}
                if before:
                    found["before"] = {"commit": given.before, **merged(before)}
                rows[name] = {**found, "machine": machine.record(None)}
                print(name, json.dumps({key: rows[name].get(key) for key in ("now", "before")}), flush=True)
                content = {"schema": "fedscope/benchmark-commands/1", "rows": rows}
                given.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        finally:
            if given.before:
                words = ["git", "worktree", "remove", "--force", str(older)]
                subprocess.run(words, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
