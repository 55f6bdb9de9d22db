import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.registry import Run
from fedscope.cli.main import COMMANDS, call
from tests.cli.conftest import Command

HEAVY = ("torch", "numpy", "matplotlib", "datasets")


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
from click import Context, Group
from fedscope.cli.main import call, main
assert call(["--help"]) == 0
assert not [name for name in {(*HEAVY, "pydantic", "rich")} if name in sys.modules]

def walk(group, words):
    for name in group.list_commands(Context(group)):
        assert call([*words, name, "--help"]) == 0
        assert not [heavy for heavy in {HEAVY} if heavy in sys.modules], (*words, name)
        found = group.get_command(Context(group), name)
        if isinstance(found, Group):
            walk(found, [*words, name])

walk(main, [])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in (*COMMANDS, "plot-partition [OPTIONS]"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(fedscope: Command, name: str) -> None:
    done = fedscope(name, "--help")
    assert done.code == 0
    assert COMMANDS[name][1].split()[0] in done.out


class Poison:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (Path("canary"),))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["train", "--nonsense"], "No such option"),
        (["train", "--method", "fedprx"], "unknown method 'fedprx'; did you mean 'fedprox'?"),
        (["train", "--dataset", "mnist"], "unknown dataset 'mnist'; choose one of digits"),
        (["train", "--dataset", "cifar-10"], "unknown dataset 'cifar-10'; did you mean 'cifar10'?"),
        (["train", "--method", "fedavg+mam"], "unknown method 'mam'; did you mean 'man'?"),
        (["train", "--model", "resnet2O"], "unknown model 'resnet2O'; did you mean 'resnet20'?"),
        (["train", "--partition", "dirichlet"], "unknown partition 'dirichlet'; did you mean 'dirichlet"),
        (["hessian", "--parameters", "stm.*"], "no trainable parameter matches 'stm.*'; did you mean 'stem"),
        (["train", "--dataset", "cifar100", "--data-dir", "nowhere"], "no such data folder: nowhere"),
        (["train", "--model", "vgg"], "unknown model 'vgg'"),
        (["train", "--set", "prox.mu=1"], "method fedavg has no option 'prox.mu'; it has none"),
        (["train", "--method", "fedprox", "--set", "prox.mu"], "as OPTION=VALUE"),
        (["train", "--clients", "200"], "1437 samples serve at most 143 clients, not 200"),
        (["train", "--clients", "2000", "--partition", "iid"], "2000 clients cannot share 1437 samples"),
        (["train", "--rounds", "0"], "rounds: Input should be greater than or equal to 1"),
        (["train", "--lr", "nan"], "lr: Input should be"),
        (["train", "--name", "../up"], "is no run name"),
        (["train", "--name", "tiny"], "is taken; choose another --name"),
        (["train", "--resume"], "needs the --name"),
        (["train", "--device", "cuda:9000"], "there is no device"),
        (["train", "--nesterov", "true"], "needs --momentum above 0"),
        (["train", "--seed", "99999999999999999999"], "seed: Input should be less than"),
        (["train", "--sampling", "bernoulli", "--participation", "1e-9"], "is nobody"),
        (["train", "--resume", "--name", "tinny"], "did you mean 'tiny'?"),
        (["hessian", "tiny@²"], "use @best, @final"),
        (["hessian", "--samples", "²"], "a number from 1 up, or all"),
        (["hessian", "--engine", "pyhessian", "--probes", "9"], "and --probes"),
        (["plot-landscape", *["tiny"] * 7], "up to 6 checkpoints"),
        (["train", "--device", "abacus"], "unknown device"),
        (["hessian", "missing.pt"], "no such file: missing.pt"),
        (["hessian", "tinny"], "did you mean 'tiny'?"),
        (["hessian", "cut.pt"], "truncated or damaged"),
        (["hessian", "evil.pt"], "asks to run code"),
        (["hessian", "plain.pt"], "add --model MODULE:FACTORY"),
        (["hessian", "plain.pt", "--model", "m:f"], "--model and --data go together"),
        (["hessian", "plain.pt", "--model", "m:f", "--data", "m"], "takes MODULE:FUNCTION"),
        (["hessian", "plain.pt", "--model", "m:f", "--data", "nomodule:f"], "No module named 'nomodule'"),
        (["hessian", "--samples", "some"], "a number from 1 up, or all"),
        (["hessian", "--engine", "pyhessian", "--density"], "drop --density"),
        (["hessian", "--bn", "batch"], "one batch"),
        (["hessian", "--figure", "d.gif"], "suffix .png, .pdf or .svg"),
        (["plot-landscape", "--out", "landscape.gif"], "suffix .png, .pdf or .svg"),
        (["plot-landscape", "--out", "plain.pt/landscape.png"], "cannot write plain.pt/landscape.png"),
        (["hessian", "--json", "."], "cannot write ."),
        (["plot-landscape", "--grid", "2"], "take 3 points or more"),
        (["plot-landscape", "--grid", "41x"], "as 41 or 41x21, not '41x'"),
        (["plot-landscape", "--directions", "line", "tiny"], "line takes 2 checkpoints, not 1"),
        (["plot-landscape", "--directions", "points", "tiny", "tiny"], "points takes 3 checkpoints, not 2"),
        (["plot-landscape", "--directions", "pca"], "kept 0 of its rounds"),
        (["runs", "show", "none"], "no run 'none'"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_code_2(
    fedscope: Command, run: Run, arguments: list[str], message: str
) -> None:
    Path("cut.pt").write_bytes(run.final.read_bytes()[:5000])
    Path("evil.pt").write_bytes(pickle.dumps(Poison()))
    torch.save({"weight": torch.ones(2)}, "plain.pt")
    before = sorted(run.folder.parent.glob("*/"))
    done = fedscope(*arguments)
    lines = [line for line in done.err.splitlines() if not line.startswith("fedavg: ")]
    assert (done.code, done.out, len(lines)) == (2, "", 1)
    assert lines[0].startswith("Error: ")
    assert message in lines[0]
    assert not Path("canary").exists()
    assert sorted(run.folder.parent.glob("*/")) == before


def test_our_own_fault_is_code_1(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("fedscope.checkpoints.registry.Registry.rows", broken)
    done = fedscope("runs", "list")
    assert done.code == 1
    assert "ZeroDivisionError: oops" in done.err
    assert done.err.splitlines()[-1].startswith("Error: this is a fault of fedscope")


def test_an_interrupt_says_how_to_go_on(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedscope.checkpoints.registry.Registry.rows", interrupted)
    done = fedscope("runs", "list")
    assert done.code == 130
    assert "--resume" in done.err


def test_the_installed_command_exits_with_the_code() -> None:
    done = subprocess.run([sys.executable, "-m", "fedscope", "nonsense"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert call(["--version"]) == 0
