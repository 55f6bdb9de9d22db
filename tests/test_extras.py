"""What works with the core requirements alone, and what is said where a package of an extra is missing."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from fedscope.errors import UserError
from fedscope.extras import needed, versions

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {
    "scikit-learn": "sklearn",
    "pillow": "PIL",
    "mlflow-skinny": "mlflow",
}  # where a package's name is not its module's

MINE = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 3))

def data():
    inputs = torch.randn(96, 20, generator=torch.Generator().manual_seed(0))
    return list(zip(inputs.split(32), inputs[:, :3].argmax(1).split(32)))
"""
HIDING = """
import io, json, pkgutil, shlex, sys
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module, metadata

sys.modules.update(dict.fromkeys({hidden!r}))
recorded = metadata.Distribution.from_name.__func__

def not_hidden(cls, name):
    if name in {packages!r}:
        raise metadata.PackageNotFoundError(name)
    return recorded(cls, name)

metadata.Distribution.from_name = classmethod(not_hidden)
import torch
import fedscope
from fedscope.cli.main import call
from fedscope.errors import UserError

import mine
torch.save(mine.model().state_dict(), "mine.pt")
for entry in {lines!r}:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = call(shlex.split(entry))
    print(json.dumps([entry, code, out.getvalue() + err.getvalue()]))

refused = dict()
for module in pkgutil.walk_packages(fedscope.__path__, "fedscope.", onerror=lambda name: None):
    if not module.name.endswith("__main__"):
        try:
            import_module(module.name)
        except UserError as error:
            refused[module.name] = str(error)
print(json.dumps(refused))
"""

OWN = "--model mine:model --data mine:data"
WORKS = (
    f"train {OWN} --rounds 1 --name own --registry r",
    "runs list --registry r",
    "runs show own --registry r",
    "runs verify --registry r",
    "runs push own --registry r shared",
    "runs pull own shared --registry r2",
    "runs export own --registry r --format safetensors --out own.safetensors",
    f"hessian mine.pt {OWN} --top-k 2 --probes 4 --density --figure density.png",
    f"hessian mine.pt {OWN} --engine pyhessian",
    f"plot-landscape mine.pt {OWN} --grid 3 --out landscape.png",
    "plot-runs own --registry r --out accuracy.png",
    "train --dataset synthetic --clients 2 --rounds 1 --train-samples 64 --test-samples 32 "
    "--model mlp_digits --registry r --name synthetic",
    "data list",
    "methods list",
    "models list",
    "figures list",
)
REFUSED = {
    "train --rounds 1 --registry r": "train",
    "train --dataset cifar10 --rounds 1 --registry r --data-dir parquet": "train",
    f"train {OWN} --rounds 1 --registry r --name a --log tensorboard": "tensorboard",
    f"train {OWN} --rounds 1 --registry r --name b --log wandb": "wandb",
    f"train {OWN} --rounds 1 --registry r --name c --log mlflow": "mlflow",
    "train --model hf:base --data text:mine.py --rounds 1 --registry r": "transformers",
    "demo": "report",
    "report own --registry r": "report",
    f"plot-landscape mine.pt {OWN} --out landscape.html": "report",
    "figures build man/table2 --scale smoke --registry r --out gallery": "report",
    "runs push own --registry r hf://datasets/somebody/runs": "hub",
}


def optional() -> dict[str, str]:
    """Return package → module of all that extras install and the core does not."""
    core = {Requirement(one).name for one in PROJECT["dependencies"]}
    extras = {name: few for name, few in PROJECT["optional-dependencies"].items() if name != "test"}
    every = {Requirement(one).name for few in extras.values() for one in few} - {"fedscope"}
    return {name: MODULES.get(name, name.replace("-", "_")) for name in sorted(every - core)}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What each command says where only the core is installed: command → exit code and text; and imports."""
    folder = tmp_path_factory.mktemp("core")
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    (folder / "parquet").mkdir()
    for split in ("train", "test"):
        (folder / "parquet" / f"{split}-00000-of-00001.parquet").write_bytes(b"PAR1")
    code = HIDING.format(hidden=[*optional().values()], packages=[*optional()], lines=[*WORKS, *REFUSED])
    environment = {"PYTHONPATH": f"{folder}:{ROOT / 'src'}", "FEDSCOPE_CACHE": str(folder / "cache"),
                   "OMP_NUM_THREADS": "1", "PATH": ""}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    *lines, refused = map(json.loads, done.stdout.splitlines())
    return {line: (code, text) for line, code, text in lines}, refused


def test_the_hidden_modules_are_those_of_the_extras() -> None:
    assert {"sklearn", "datasets", "pyarrow", "plotly", "jinja2", "fsspec", "tensorboard"} <= set(
        optional().values()
    )
    assert not {"torch", "PIL", "safetensors", "pydantic"} & set(optional().values())


@pytest.mark.parametrize("line", WORKS)
def test_the_core_needs_no_extra(line: str, said: Any) -> None:
    code, text = said[0][line]
    assert code == 0, text


@pytest.mark.parametrize(("line", "extra"), REFUSED.items())
def test_a_missing_package_is_told_with_its_extra(line: str, extra: str, said: Any) -> None:
    code, text = said[0][line]
    assert code == 2, text
    assert text.splitlines()[-1].startswith("Error: ")
    assert f"pip install 'fedscope[{extra}]'" in text
    assert extra in PROJECT["optional-dependencies"]


def test_every_module_can_be_imported_or_names_its_extra(said: Any) -> None:
    refused = said[1]
    assert {name.split(".")[1] for name in refused} == {
        "api", "report", "reproduce", "workflows",
    }  # fmt: skip
    assert all("pip install 'fedscope[" in text for text in refused.values()), refused
    assert "fedscope.landscape" not in " ".join(refused)
    assert [name for name in refused if name.startswith("fedscope.api")] == ["fedscope.api.report"]


def test_versions_are_of_what_is_installed() -> None:
    assert list(versions(["numpy", "no-such-package", "torch"])) == ["numpy", "torch"]


def test_a_fault_inside_the_package_is_no_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"), needed("hub", "this"):
        import fedscope.nowhere  # type: ignore[import-not-found]  # noqa: F401
    with (
        pytest.raises(UserError, match=r"this needs nowhere: pip install 'fedscope\[hub\]'"),
        needed("hub", "this"),
    ):
        import nowhere.at.all  # type: ignore[import-not-found]  # noqa: F401


def test_the_whole_is_in_all_and_tests_need_no_more() -> None:
    extras = PROJECT["optional-dependencies"]
    (whole,) = map(Requirement, extras["all"])
    assert whole.extras | {"all", "docs", "hub", "notebooks", "test"} == set(extras)  # remote has hub
    assert next(Requirement(one) for one in extras["test"]).extras <= whole.extras | {"docs", "hub"}


def test_the_package_itself_imports_a_handful_of_modules() -> None:
    code = "import sys; before = set(sys.modules); import fedscope; print(*set(sys.modules) - before)"
    environment = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    new = {name.partition(".")[0] for name in done.stdout.split()}
    assert "fedscope" in new
    assert not new - set(sys.stdlib_module_names) - {"fedscope"}, new
    assert len(done.stdout.split()) < 40, done.stdout
