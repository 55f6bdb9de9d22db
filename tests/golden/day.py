"""What is run: commands on reference runs, an own network and a plug-in; artefacts from their records."""

import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from tests.golden.numbers import Lines, lines

ROOT = Path(__file__).parents[2]
A, B = "reference-fedavg", "reference-fedavg+man"
SMALL = "--samples 64 --probes 4"
OWN = "--model ownwork:model --data ownwork:data"
TINY = "--model mlp_digits --clients 2 --rounds 2 --train-samples 64 --test-samples 32"
REFERENCES = [
    f"hessian {A} {B} {SMALL} --top-k 2",
    f"hessian {A} {SMALL} --operator ggn",
    f"hessian {A} {SMALL} --operator fisher",
    f"hessian {A} {SMALL} --operator mcfisher",
    f"hessian {A} {SMALL} --density",
    f"hessian {A} {SMALL} --clients --client-probes 6",
    f"hessian {A} {SMALL} --clients --client-probes 6 --overlap 1",
    f"hessian {A} {SMALL} --influence 3",
    f"hessian {A} {SMALL} --products finite-differences",
    f"hessian {A} --samples 64 --engine power",
    f"hessian {A} --samples 64 --engine pyhessian",
    f"hessian {B} --samples 64 --bn recalibrate --trace-rtol 0.2",
]
SLICES = [
    f"clients {A} --only loss,lambda_max --samples 64",
    f"sharpness {A} {B} --samples 64",
    f"plot-landscape {A} {B} --samples 64 --grid 5",
    f"plot-landscape {A} --samples 64 --grid 5 --directions random",
    f"plot-landscape {A} --samples 64 --grid 5 --directions clients",
    f"plot-landscape {A} {B} --samples 64 --grid 5 --directions line",
]
CATALOGUES = [
    "runs list",
    f"runs show {A}",
    f"runs show {A} --provenance",
    f"runs diff {A} {B}",
    f"plot-runs {A} {B}",
    "data plot-partition --partition dirichlet_balanced --alpha 0.3 --clients 8",
    f"data plot-partition {A}",
    "data list",
    "data show digits",
    "methods list",
    "methods show feddyn",
    "models list",
    "models show resnet20",
    "presets show man/t1/cifar100/delta0.3",
]
OWN_NETWORK = [
    f"hessian mine.pt {OWN} --probes 8 --top-k 3 --density",
    f"hessian mine.pt {OWN} --probes 8 --dtype float64",
    f"hessian mine.pt {OWN} --probes 8 --layers --both-ends",
    f"plot-landscape mine.pt {OWN} --grid 7",
    f"sharpness mine.pt {OWN}",
]
PLUG_IN = [
    f"train --method golden --name plugged --save-clients all {TINY}",
    f"train --method scaffold+fedsam --name known {TINY}",
    "runs show plugged",
    f"hessian plugged {SMALL} --clients --client-probes 6",
    "plot-landscape plugged known --samples 64 --grid 5 --directions line",
]
OWNWORK = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3))

def data():
    inputs = torch.randn(256, 20, generator=torch.Generator().manual_seed(0))
    return zip(inputs.split(64), inputs[:, :3].argmax(1).split(64))
"""
METHOD = """
from fedscope.federated.record.method import Method
from fedscope.federated.record.vectors import Vector

def extrapolated(at):
    return at.kept + 0.5 * at.state["golden.d"]

def averaged(step):
    d = 0.5 * (step.mean - step.kept)
    return step.kept + d, {"golden.d": d}

GOLDEN = Method(
    name="golden", objective="l(w)", source="the golden day", server=averaged, sends=extrapolated,
    server_state=(Vector("golden.d"),),
)
"""
DAYS = {
    "references": REFERENCES, "slices": SLICES, "catalogues": CATALOGUES, "own": OWN_NETWORK,
    "plug-in": PLUG_IN,
}  # fmt: skip


def prepared(place: Path) -> None:
    """Make ``place`` the working directory, with all that the commands name."""
    import torch

    registry = place / "checkpoints"
    for name in (A, B):
        shutil.copytree(ROOT / "checkpoints" / name, registry / name)
    (place / "ownwork.py").write_text(OWNWORK, encoding="utf-8")
    site = place / "site"
    (site / "golden_method-1.dist-info").mkdir(parents=True)
    (site / "golden_method.py").write_text(METHOD, encoding="utf-8")
    info = site / "golden_method-1.dist-info"
    (info / "METADATA").write_text("Name: golden_method\nVersion: 1.0\n", encoding="utf-8")
    points = "[fedscope.methods]\ngolden = golden_method:GOLDEN\n"
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    os.chdir(place)
    sys.path[:0] = [str(place), str(site)]
    os.environ["FEDSCOPE_CACHE"] = str(place / "cache")
    os.environ.pop("FEDSCOPE_REGISTRY", None)
    torch.set_num_threads(1)
    import ownwork  # type: ignore[import-not-found]

    torch.manual_seed(0)
    torch.save(ownwork.model().state_dict(), "mine.pt")


def said(command: str) -> Any:
    """Return the JSON of a command.

    Raises:
        RuntimeError: it failed; with what it said.
    """
    from fedscope.cli.main import call

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = call(command.split())
    if code:
        raise RuntimeError(f"fedscope {command} ended with {code}: {err.getvalue()}")
    return json.loads(out.getvalue())


def numbers_of(day: str, place: Path) -> Iterator[tuple[str, Lines]]:
    """Yield each command of a day with its numbers."""
    for command in DAYS[day]:
        yield command, lines(said(f"{command} --json"), str(place))


def artefacts() -> list[str]:
    """Return the recipes whose artefacts are committed, ``man/table1-cpu``."""
    found = (ROOT / "figures").glob("*/*.json")
    schema = '"schema": "fedscope/artefact/'
    return sorted(
        path.relative_to(ROOT / "figures").with_suffix("").as_posix()
        for path in found
        if schema in path.read_text(encoding="utf-8")[:200]
    )


def rebuilt(names: list[str], place: Path) -> Iterator[tuple[str, Lines, Lines]]:
    """Yield artefacts, each with the numbers that are committed and those of its records."""
    papers = place / "papers"
    shutil.copytree(ROOT / "checkpoints" / "papers", papers, copy_function=_linked)
    for name in names:
        recipe, _, scale = name.rpartition("-")
        _build(recipe, scale, papers, place / "figures")
        pair = (folder / "figures" / f"{name}.json" for folder in (ROOT, place))
        committed, found = (lines(json.loads(file.read_text(encoding="utf-8")), str(place)) for file in pair)
        yield name, committed, found


def _build(recipe: str, scale: str, registry: Path, out: Path) -> None:
    """Render an artefact from what the registry has; nothing is trained in its stead."""
    from fedscope.reproduce.plan import BuildSettings
    from fedscope.reproduce.recipes.run_cells import Choices
    from studies.readings.readings_study import ReadingsStudy
    from studies.settings.search_study import SearchStudy
    from studies.study import build

    for study in (ReadingsStudy(), SearchStudy()):
        if study.name == recipe:
            build(
                study,
                study.recipe(scale),
                Choices(),
                BuildSettings(registry, out),
                lambda _: None,
                partial=True,
            )
            return
    said(f"figures build {recipe} --scale {scale} --registry {registry} --out {out} --partial --json")


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
