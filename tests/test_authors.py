"""The comparison with the authors' programs: its machinery on a made-up program, and its table and record."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from fedscope.federated.methods import ALIASES, METHODS, parse
from tests.test_benchmarks import BENCHMARKS

AUTHORS = BENCHMARKS / "authors"
PROGRAM = """
import torch
from nowhere import Writer

writer = Writer("log")


def train(model, loader, lr, epochs):
    for _ in range(epochs):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels)
            gradients = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for p, g in zip(model.parameters(), gradients):
                    p -= lr / 2 * g.float()
    writer.add("done", len(loader))
    print("done")
    return [p.detach() for p in model.parameters()]
"""
ADAPTER = """
import torch


def run(problem, entry):
    import program

    model, states, settings = problem.network(), [], problem.settings
    for round, sampled in enumerate(problem.participants):
        lr, uploads = settings.lr * settings.lr_decay**round, []
        for k in sampled:
            own = problem.network()
            own.load_state_dict(model.state_dict())
            uploads.append(getattr(program, entry)(own, problem.loader(k), lr, settings.epochs))
        with torch.no_grad():
            for p, *values in zip(model.parameters(), *uploads):
                p.copy_(torch.stack(values).mean(0))
        states.append({name: values.clone() for name, values in model.state_dict().items()})
    return states
"""
TABLE = """
[programs.made-up]
repository = "{repository}"
commit = "{commit}"
licence = "ours"
files = ["program.py"]
adapter = "made_up"
stubs = ["nowhere"]

[[rows]]
method = "fedavg"
program = "made-up"
entry = "train"
settings = {{ weights = "uniform", weight_decay = 0.0 }}
why = "half the rate. Patched: the whole"
[[rows.patches]]
file = "program.py"
old = "lr / 2 * g"
new = "lr * g"
"""


@pytest.fixture
def authors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module of the comparison, and an adapter beside those that it has."""
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "made_up.py").write_text(ADAPTER)
    for folder in (tmp_path, AUTHORS):
        monkeypatch.syspath_prepend(str(folder))
    import compare

    return compare


def committed(folder: Path) -> str:
    """Make a repository of the program in ``folder``; return its commit."""
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    git = ["git", "-C", str(folder), "-c", "user.name=made up", "-c", "user.email=made@up"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "made up"]):
        subprocess.run([*git, *command], check=True)
    found = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return found.stdout.strip()


def test_a_made_up_program_is_cloned_patched_and_compared(
    authors: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit, table = committed(tmp_path / "origin"), tmp_path / "rows.toml"
    table.write_text(TABLE.format(repository=tmp_path / "origin", commit=commit))
    record, before = tmp_path / "record.json", set(sys.modules)
    flags = ["--programs", tmp_path / "programs", "--json", record, "--table", table]
    monkeypatch.setattr(sys, "argv", ["compare.py", *map(str, flags)])
    authors.main()
    (row,) = json.loads(record.read_text())["rows"]
    assert min(row["apart"]) > 0.1
    assert max(row["patched"]) < 1e-12
    assert (tmp_path / "programs" / "origin" / "program.py").read_text() == PROGRAM
    assert capsys.readouterr().out.startswith("fedavg / made-up ")
    assert not {"program", "nowhere"} & (set(sys.modules) - before)
    assert (torch.get_default_dtype(), torch.float32) == (torch.float32, torch.zeros(1).dtype)

    text = table.read_text().replace("lr / 2 * g", "lr / 3 * g")
    table.write_text(text)
    with pytest.raises(ValueError, match=r"program\.py has 'lr / 3 \* g' 0 times"):
        authors.main()


def test_a_client_gets_the_batches_of_its_rounds_in_order(authors: Any) -> None:
    problem, _ = authors.posed("fedavg", {}, {})
    assert problem.participants == [[0, 1, 3], [0, 1, 2]]
    sizes = problem.sizes()
    assert (len(set(sizes)), len({-(-size // 10) for size in sizes})) == (4, 3)
    inputs, labels = problem.clients[2]
    loader = problem.loader_of(list(zip(inputs, labels, strict=True)))  # of a program's own copy of the data
    for rows in problem.batches(2, 2):
        for expected, (images, found) in zip(rows, loader, strict=True):
            assert torch.equal(images, inputs[expected])
            assert torch.equal(found, labels[expected])
    with pytest.raises(IndexError):
        next(iter(loader))  # a third epoch of a client that takes part once


def test_a_difference_is_relative_to_the_largest_change(authors: Any) -> None:
    start, moved = {"w": torch.zeros(2)}, {"w": torch.tensor([1.0, -4.0])}
    assert authors.apart(start, {"w": torch.tensor([1.0, -3.0])}, moved) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="those of the start"):
        authors.apart(start, moved, start)
    with pytest.raises(ValueError, match="returns no w"):
        authors.apart(start, moved, {})


def test_the_record_has_a_row_for_every_row_and_every_method_has_one(authors: Any) -> None:
    table = authors.read(AUTHORS / "rows.toml")
    record = json.loads((BENCHMARKS / "authors.json").read_text())
    assert [authors.key(row) for row in record["rows"]] == [authors.key(row) for row in table.rows]
    assert record["absent"] == table.absent
    for one, row in zip(record["rows"], table.rows, strict=True):
        parse(row.method).values(row.options, row.reading)
        assert record["programs"][row.program]["commit"] == table.programs[row.program].commit
        assert (one["why"], one["options"], one["settings"]) == (row.why, row.options, row.settings)
        assert max(one["patched"] or one["apart"]) < 1e-6, row.method
        assert row.why or not row.patches
        assert (AUTHORS / "adapters" / f"{table.programs[row.program].adapter.partition(':')[0]}.py").exists()
    named = {row.method for row in table.rows} | {p for row in table.rows for p in row.method.split("+")}
    assert {*METHODS, *ALIASES} <= named | set(table.absent)
    assert not named & set(table.absent)
