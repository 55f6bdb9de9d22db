"""Figures from checkpoints, from saved records, and along rounds."""

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.figures.embedded_record import read_record
from tests.cli.conftest import Command

FAST = ("--samples", "32", "--threads", "1")


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


@pytest.fixture
def kept(run: RunFolder, tmp_path: Path) -> RunFolder:
    """The run with its first round kept, in a registry of its own."""
    own = RunFolder(tmp_path / "rounds" / "tiny")
    own.folder.mkdir(parents=True)
    own.write_manifest(run.manifest())
    final = load_checkpoint(run.final)
    save_checkpoint(own.final, final.state, final.info)
    state = {name: 0.9 * value if value.is_floating_point() else value for name, value in final.state.items()}
    save_checkpoint(own.after_round(1), state, final.info.model_copy(update={"round": 1}))
    return own


def test_rounds_share_the_last_ones_directions(fedscope: Command, kept: RunFolder) -> None:
    arguments = ("tiny", *FAST, "--registry", str(kept.folder.parent), "--grid", "3", "--rounds", "1:2")
    done = fedscope("plot-landscape", *arguments, "--out", "a.gif", "--json", "frames.json")
    assert (done.code, done.out) == (0, "a.gif\n"), done.err
    records: Any = json.loads(Path("frames.json").read_text())
    assert [record["checkpoint"]["round"] for record in records] == [1, 2]
    assert {record["directions_of"]["round"] for record in records} == {2}
    assert records[0]["curvature"] is None
    with Image.open("a.gif") as image:
        assert image.n_frames == 2  # type: ignore[attr-defined]
    hashes = [record["checkpoint"]["sha256"] for record in records]
    assert read_record(Path("a.gif"))["checkpoints"] == hashes
    alone = fedscope("plot-landscape", "tiny@2", *arguments[1:-2], "--json", "-", "--out", "b.png").json
    assert alone["loss"] == records[1]["loss"]  # centred at its own weights, along its own directions
    assert alone["curvature"] == records[1]["curvature"]
    assert alone["directions_of"] is None
    strip = fedscope("plot-landscape", "--from", "frames.json", "--out", "strip.pdf")
    assert (strip.code, strip.out) == (0, "strip.pdf\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--rounds", "1:9"], "kept no checkpoint of round 3, it has 1, 2"),
        (["tiny@2", "--rounds", "1:2"], "give the name of a run"),
        (["tiny", "--rounds", "1:2", "--directions", "pca"], "eigen, ggn or random, not pca"),
        (["tiny", "--rounds", "1-2"], "takes FIRST:LAST:STEP"),
        (["tiny", "--rounds", "2:2"], "2:2 names 1"),
        (["tiny@2", "--rounds", "all"], "give the name of a run"),
        (["tiny", "--rounds", "1:9:0"], "1:9:0 names 0"),
        (["tiny", "--out", "a.gif"], "add --rounds"),
        (["tiny", "--from", "x.json"], "leave out CKPT"),
        (["--from", "x.json", "--grid", "21", "--samples", "9"], "leave out --samples, --grid"),
        (["--from", "x.json"], "holds none of that name, give its path"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    fedscope: Command, kept: RunFolder, arguments: list[str], message: str
) -> None:
    done = fedscope("plot-landscape", *arguments, "--registry", str(kept.folder.parent))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err


def test_a_saved_landscape_is_drawn_again_to_the_same_bytes(fedscope: Command) -> None:
    arguments = (*FAST, "--directions", "random", "--grid", "3")
    assert fedscope("plot-landscape", *arguments, "--out", "a.png", "--json", "a.json").code == 0
    assert fedscope("plot-landscape", "--from", "a.json", "--out", "b.png").code == 0
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()
    heat = fedscope(
        "plot-landscape", "--from", "a.json", "--from", "a.json", "--kind", "heat", "--out", "c.svg"
    )
    assert heat.code == 0
    missing = fedscope("plot-landscape", "--from", "a.json", "--show", "f1", "--out", "d.png")
    assert (missing.code, "has no f1; it has loss" in missing.err) == (2, True)


def test_hessian_figures_from_checkpoints_and_from_records(fedscope: Command) -> None:
    few = ("tiny", *FAST, "--probes", "2", "--client-probes", "16", "--top-k", "3")
    done = fedscope(
        "hessian", *few, "--density", "--figure", "c.png", "--kind", "clients", "--json", "r.json"
    )
    assert done.code == 0, done.err
    record: Any = json.loads(Path("r.json").read_text())
    cross = record["cross_client"]
    assert cross["numbers"] == [0, 1, 2]
    assert len(cross["traces"]) == 3
    for reading, matrix in cross["matrices"]["H_D"].items():
        pairs = [matrix[i][j] for i in range(3) for j in range(3) if i != j]
        assert sum(pairs) / 6 == pytest.approx(cross["H_D"][reading]["value"])
    for kind in ("density", "eigenvalues", "clients", "bars"):
        drawn = fedscope("plot-hessian", "r.json", "--kind", kind, "--out", f"{kind}.pdf")
        assert (drawn.code, drawn.out) == (0, f"{kind}.pdf\n"), drawn.err
    again = fedscope("plot-hessian", "r.json", "--kind", "clients", "--out", "again.png")
    assert again.code == 0
    assert Path("again.png").read_bytes() == Path("c.png").read_bytes()
    bad = fedscope("plot-hessian", "r.json", "c.png")
    assert (bad.code, "c.png is no .json file" in bad.err) == (2, True)
