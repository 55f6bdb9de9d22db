"""How large the package is, what repeats in it, and how much of it a command works in.

    python benchmarks/house.py [--before COMMIT] [--commands]

Prints a table with a column for the working tree and, with ``--before``, one for a commit. With
``--commands`` three commands are run on a reference run, and a file counts as worked in where one of its
functions is called in the command's own process, other than by the file itself while it is imported.
"""

import argparse
import ast
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RUN = "reference-fedavg"
TINY = "--model mlp_digits --clients 2 --rounds 1 --train-samples 64 --test-samples 32"
COMMANDS = {
    "hessian RUN --clients": f"hessian {RUN} --clients --samples 64 --probes 4 --client-probes 4",
    "train": f"train --name tiny {TINY}",
    "figures build man/table2": "figures build man/table2 --scale smoke --out figures",
}
PROFILED = """
import inspect, json, sys, threading
from pathlib import Path
codes = set()
def seen(frame, event, argument):
    code = frame.f_code
    if event == "call" and code not in codes and code.co_filename.startswith(ROOT):
        caller = frame.f_back.f_code.co_name if frame.f_back else "<module>"
        if code.co_flags & inspect.CO_OPTIMIZED and caller != "<module>":
            codes.add(code)
ROOT, out, *words = sys.argv[1:]
threading.setprofile(seen)
sys.setprofile(seen)
from fedscope.cli.main import call
rc = call(words)
sys.setprofile(None)
loaded = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "fedscope"]
Path(out).write_text(json.dumps({"worked": [code.co_filename for code in codes], "loaded": loaded}))
sys.exit(rc)
"""
LOADED = "import sys, fedscope.landscape; print(sum(n.startswith('fedscope') for n in sys.modules))"


def modules(src: Path) -> dict[Path, str]:
    """Return the texts of all Python files below a folder."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(src.rglob("*.py"))}


def repeated(names: Iterator[str]) -> dict[str, int]:
    """Return the names that come more than once, and how often."""
    return {name: count for name, count in Counter(names).items() if count > 1}


def class_names(src: Path) -> Iterator[str]:
    """Yield the name of every class."""
    for text in modules(src).values():
        yield from (node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))


def file_names(src: Path) -> Iterator[str]:
    """Yield the name of every file but ``__init__.py``."""
    yield from (path.name for path in modules(src) if path.name != "__init__.py")


def largest_file(src: Path) -> int:
    """Return the lines of the largest file."""
    return max(len(text.splitlines()) for text in modules(src).values())


def largest_folder(src: Path) -> int:
    """Return how many files the fullest folder holds itself."""
    return max(Counter(path.parent for path in modules(src)).values())


def median_body(src: Path) -> float:
    """Return the median number of lines of a function's body, without its docstring."""
    return statistics.median(
        (node.end_lineno or 0) - body[0].lineno + 1
        for text in modules(src).values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (body := node.body[ast.get_docstring(node) is not None :])
    )


def sizes(src: Path) -> dict[str, float]:
    """Return the figures that need nothing to be run."""
    texts = modules(src)
    return {
        "lines": sum(len(text.splitlines()) for text in texts.values()),
        "files": len(texts),
        "class names used more than once": len(repeated(class_names(src))),
        "file names used more than once": len(repeated(file_names(src))),
        "files in the largest folder": largest_folder(src),
        "lines of the largest file": largest_file(src),
        "median lines of a function's body": median_body(src),
    }


def imported(src: Path) -> dict[str, float]:
    """Return how many of the package's modules ``import fedscope.landscape`` imports."""
    done = _python(src, "-c", LOADED, cwd=src)
    return {"modules that 'import fedscope.landscape' imports": int(done)}


def worked_in(src: Path) -> Iterator[tuple[str, float]]:
    """Run the commands; yield the files and folders that each works in, and the files only imported."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(ROOT / "checkpoints" / RUN, Path(place) / "checkpoints" / RUN)
        script, out = Path(place) / "profiled.py", Path(place) / "found.json"
        script.write_text(PROFILED, encoding="utf-8")
        for name, words in COMMANDS.items():
            _python(src, str(script), str(src / "fedscope"), str(out), *words.split(), cwd=Path(place))
            found = json.loads(out.read_text(encoding="utf-8"))
            worked, loaded = set(found["worked"]), set(found["loaded"])
            yield f"{name}: files worked in", len(worked)
            yield f"{name}: folders worked in", len({Path(file).parent for file in worked})
            yield f"{name}: files only imported", len(loaded - worked)


def _python(src: Path, *words: str, cwd: Path) -> str:
    variables = {**os.environ, "PYTHONPATH": str(src), "FEDSCOPE_CACHE": str(cwd / "cache")}
    variables.pop("FEDSCOPE_REGISTRY", None)
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=variables, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def figures(src: Path, *, commands: bool) -> dict[str, float]:
    """Return all figures of a tree."""
    return sizes(src) | imported(src) | (dict(worked_in(src)) if commands else {})


def before(commit: str, place: Path) -> Path:
    """Return the ``src`` of a commit, unpacked below ``place``."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(place, filter="data")
    return place / "src"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--before", metavar="COMMIT")
    parser.add_argument("--commands", action="store_true")
    given = parser.parse_args()
    columns = {}
    with tempfile.TemporaryDirectory() as place:
        if given.before:
            columns[given.before] = figures(before(given.before, Path(place)), commands=given.commands)
        columns["now"] = figures(ROOT / "src", commands=given.commands)
    print(f"| |{'|'.join(columns)}|\n|---|{'--:|' * len(columns)}")
    for name in columns["now"]:
        print(f"|{name}|{'|'.join(f'{column[name]:,g}' for column in columns.values())}|")


if __name__ == "__main__":
    main()
