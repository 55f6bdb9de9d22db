"""A newcomer's first hour: forty command lines from README and guides, ten of them mistaken."""

import io
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import torch

from fedscope.cli.main import call
from fedscope.cli.terminal import verbosity

pytestmark = pytest.mark.slow

MINE = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 3))

def data():
    inputs = torch.randn(512, 20, generator=torch.Generator().manual_seed(0))
    return zip(inputs.split(64), inputs[:, :3].argmax(1).split(64))

def clients():
    return list(data())
"""
TRAIN = "train --model mlp_digits --clients 4"
SMALL = "--samples 128 --probes 8"

SCRIPT: list[tuple[str, int, list[str]]] = [
    ("", 2, ["Usage: fedscope", "hessian         Measure the curvature"]),
    ("--version", 0, ["0.1.0"]),
    ("hessian", 2, ["holds no run yet", "`fedscope train` makes one"]),
    (f"{TRAIN} --rounds 2 --name a", 0, ["a: round 2/2: accuracy", "checkpoints/a/final.pt"]),
    (f"{TRAIN} --rounds 2 --method fedavg+man --name b", 0, ["checkpoints/b/final.pt"]),
    (
        "runs list",
        0,
        ["a    │ finished │ fedavg ", "b    │ finished │ fedavg+man", "not shown in 80 columns"],
    ),
    ("runs show a", 0, ["mlp_digits", r"final +│ global"]),
    ("runs diff a b", 0, ["option man.zeta"]),
    (f"hessian a b {SMALL}", 0, ["λ_max ± data", "a@2", "b@2", "Difference to a@2"]),
    (f"hessian a b {SMALL} --json both.json", 0, ["as measured before"]),
    (f"hessian a {SMALL} --top-k 2 --layers --figure spectrum.png --kind eigenvalues", 0, ["by layer"]),
    ("plot-hessian both.json --kind bars --out bars.png", 0, ["bars.png"]),
    ("plot-landscape a b --samples 64 --grid 5 --out landscape.png", 0, ["landscape.png"]),
    ("plot-runs a b --out accuracy.png", 0, ["accuracy.png"]),
    ("report a b --no-compute --out report.html", 0, ["report.html"]),
    ("methods list", 0, ["fedavg", "feddyn"]),
    ("methods show feddyn", 0, ["Acar et al. 2021"]),
    ("models list", 0, ["convnet_cifar"]),
    ("data list", 0, ["cifar100"]),
    ("presets list", 0, ["man/t1/cifar100/delta0.3"]),
    ("presets show man/t1/cifar100/delta0.3", 0, ["dirichlet_equal"]),
    ("data plot-partition --partition iid --clients 4 --out iid.png", 0, ["iid.png"]),
    (
        "hessian mine.pt --model ownwork:model --data ownwork:data --probes 8",
        0,
        ["mine.pt +│ +[\\d.]+ ± [\\d.]+"],
    ),
    (
        "plot-landscape mine.pt --model ownwork:model --data ownwork:data --grid 5 --out mine.png",
        0,
        ["mine.png"],
    ),
    (
        "train --model ownwork:model --data ownwork:clients --rounds 1 --name own",
        0,
        ["checkpoints/own/final.pt"],
    ),
    (f"hessian own {SMALL}", 0, ["own@1"]),
    (f"{TRAIN} --rounds 1 --seeds 0,1 --name twice", 0, ["mean ± sd of 2"]),
    ("train --resume --name a --rounds 3", 0, ["a: round 3/3"]),
    ("runs export a --format config --out a.toml", 0, ["a.toml"]),
    ("train --config a.toml --rounds 1 --name again", 0, ["checkpoints/again/final.pt"]),
    ("runs tag a good", 0, ["good"]),
    ("runs verify", 0, ["no fault"]),
    ("runs list --json", 0, ['"name": "again"']),
    ("hesian a", 2, ["did you mean 'hessian'"]),
    ("hessian aa", 2, ["did you mean 'a'"]),
    ("train --method fedvag", 2, ["did you mean 'fedavg'"]),
    ("train --rounds 0", 2, ["--rounds takes a whole number from 1 up, not 0"]),
    (f"{TRAIN} --lr 1e30 --rounds 2 --name wild", 2, ["wild", "diverged", "--lr"]),
    ("hessian a@", 2, ["RUN@best"]),
    ("runs add nosuch.pt --model resnet20 --dataset cifar10", 2, ["no such file or folder: nosuch.pt"]),
    ("plot-landscape a --out landscape.txt", 2, [".png, .pdf or .svg"]),
    ("train --resume --name c", 2, ["no run 'c'", "fedscope runs list"]),
    ("hessian broken.pt --model ownwork:model --data ownwork:data", 2, ["not finite: 0.weight"]),
    ("hessian a --kind clients", 2, ["--kind has no effect without --figure"]),
]
WRITTEN = (
    "both.json", "spectrum.png", "bars.png", "landscape.png", "accuracy.png", "report.html", "iid.png",
    "mine.png",
)  # fmt: skip

Said = dict[str, tuple[int, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("newcomer")


@pytest.fixture(scope="module")
def said(folder: Path) -> Iterator[Said]:
    """What each line of the script printed, in both streams, and its exit code."""
    (folder / "ownwork.py").write_text(MINE, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(str(folder))
        patch.setenv("COLUMNS", "80")
        patch.delenv("FEDSCOPE_REGISTRY", raising=False)
        torch.set_num_threads(1)
        import ownwork  # type: ignore[import-not-found]

        state = ownwork.model().state_dict()
        torch.save(state, "mine.pt")
        torch.save({name: t * float("nan") if t.is_floating_point() else t for name, t in state.items()},
                   "broken.pt")  # fmt: skip
        yield {line: _called(line) for line, _, _ in SCRIPT}
        verbosity.reset()


def _called(line: str) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = call(shlex.split(line))
    return code, out.getvalue() + err.getvalue()


@pytest.mark.parametrize(
    ("line", "code", "expected"), SCRIPT, ids=[line or "fedscope" for line, *_ in SCRIPT]
)
def test_a_line_does_what_the_guide_says(line: str, code: int, expected: list[str], said: Said) -> None:
    found, text = said[line]
    assert found == code, text
    for pattern in expected:
        assert pattern in text or re.search(pattern, text), text


def test_mistakes_are_answered_in_one_line_and_without_a_traceback(said: Said) -> None:
    for line, code, _ in SCRIPT:
        text = said[line][1]
        assert "Traceback" not in text
        if code == 2 and line:
            assert [row.startswith("Error: ") for row in text.splitlines()][-1], text


def test_every_promised_file_is_there(folder: Path, said: Said) -> None:
    for name in WRITTEN:
        assert (folder / name).stat().st_size > 500, name


def test_the_script_is_long_enough() -> None:
    assert len(SCRIPT) >= 40
    assert sum(code == 2 for line, code, _ in SCRIPT if line) >= 10
