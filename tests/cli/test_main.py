import os
import pickle
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.cli.main import SPINS, WAITING, call
from fedscope.cli.root import COMMANDS
from tests.cli.conftest import Command

HEAVY = ("torch", "numpy", "matplotlib", "datasets")


WALK = """
import sys
from click import Context, Group
from fedscope.cli.main import SPINS, WAITING, call
from fedscope.cli.root import main

def walk(group, words):
    context = Context(group, info_name="fedscope")
    for name in group.list_commands(context):
        _, found, _ = group.resolve_command(context, [name])
        yield [*words, name], found
        if isinstance(found, Group):
            yield from walk(found, [*words, name])
"""


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", WALK + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_help_imports_nothing_heavy() -> None:
    shown = _python(f"""
assert call(["--help"]) == 0
assert not [name for name in {(*HEAVY, "pydantic")} if name in sys.modules]
for words, _ in walk(main, []):
    assert call([*words, "--help"]) == 0
    assert not [heavy for heavy in {HEAVY} if heavy in sys.modules], words
""")
    assert all(name in shown for name in (*COMMANDS, "plot-partition [OPTIONS]"))
    assert not [letter for letter in shown if ord(letter) >= 0x1F000]  # a code as in A:B:C became a picture


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, SPINS), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None")],
)
def test_waiting_threads_leave_the_core_to_others(given: dict[str, str], spins: str) -> None:
    code = """
import os, sys
from fedscope.cli import main
main.call = lambda arguments: print(os.environ.get("GOMP_SPINCOUNT"), "torch" in sys.modules)
main.run([])
"""
    own = {name: value for name, value in os.environ.items() if name not in WAITING}
    done = subprocess.run([sys.executable, "-c", code], env={**own, **given}, capture_output=True, text=True)
    assert done.stdout.split() == [spins, "False"]


def test_every_flag_of_a_group_of_options_is_there_and_every_example_is_understood() -> None:
    _python("""
import shlex
for words, command in [([], main), *walk(main, [])]:
    known = {flag for option in command.params for flag in option.opts}
    for option in command.params:
        assert (getattr(option, "help", None) or "").count("[default") <= 1, option.name
    for panel in command.panels:
        assert set(panel.options) <= known, (words, panel.name, set(panel.options) - known)
    for line in command.examples:
        assert len(line) <= 74, line
        program, *rest = shlex.split(line)
        assert rest[: len(words)] == words, line
        found, context = main, Context(main, info_name=program)
        while isinstance(found, Group):
            _, found, rest = found.resolve_command(context, rest)
        found.make_context(line, rest)
""")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(fedscope: Command, name: str) -> None:
    done = fedscope(name, "--help")
    assert " RANGE" not in done.out  # says no range
    assert done.code == 0
    assert COMMANDS[name][1].split()[0] in done.out


OWN = """
import torch

def net():
    network = torch.nn.Module()
    network.weight = torch.nn.Parameter(torch.ones(2))
    return network

def data():
    return None
"""


class Poison:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (Path("canary"),))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "fedscope has no command 'nonsense'"),
        (["hesian"], "did you mean 'hessian'?"),
        (["runs", "lst"], "fedscope runs has no command 'lst'; did you mean 'list'?"),
        (["xyz"], "`fedscope --help` lists them"),
        (["help"], "did you mean '--help'?"),
        (["runs", "help"], "did you mean '--help'?"),
        (["version"], "did you mean '--version'?"),
        (["runs", "rm", "tiny"], "did you mean 'delete'?"),
        (["runs", "ls"], "did you mean 'list'?"),
        (["--json", "runs", "list"], "No such option '--json' before a command; give it behind the command"),
        (["runs", "--json", "list"], "before a command; give it behind the command"),
        (["train", "--nonsense"], "No such option"),
        (["runs", "diff", "tiny", "--zzzzz"], "'--zzzzz'; `fedscope runs diff --help` lists them"),
        (["train", "--resume", "tiny"], "unexpected extra argument (tiny) (a run is named by --name)"),
        (["runs", "diff", "tiny"], "Missing argument 'B'; the command is `fedscope runs diff [OPTIONS] A B`"),
        (
            ["plot-hessian"],
            "Missing argument 'RECORDS...'; the command is `fedscope plot-hessian [OPTIONS] R",
        ),
        (
            ["runs", "export", "tiny"],
            "Missing option '--out'; the command is `fedscope runs export [OPTIONS]",
        ),
        (
            ["runs", "add", "plain.pt"],
            "Missing option '--model'; the command is `fedscope runs add [OPTIONS]",
        ),
        (["runs", "push"], "Missing argument 'URL'; the command is `fedscope runs push [OPTIONS] [RUN]... U"),
        (["runs", "push", "tiny"], "where to push 'tiny'? name a folder or a URL behind it"),
        (["runs", "push", "tiny", "--all", "there"], "name runs before the URL or give --all, not both"),
        (["runs", "pull", "there"], "name one or more runs before the URL, or give --all"),
        (["runs", "pull", "tiny", "nowhere"], "give a URL that `fedscope runs push` was given"),
        (["runs", "pull", "tiny", "ftp://x"], "use a folder, s3:, gs:, hf: or https:"),
        (["runs", "list", "--page", "9"], "there are 1 runs on 1 pages; --page takes 1 to 1"),
        (["runs", "list", "--page", "0"], "--page"),
        (["runs", "list", "--sort", "acuracy"], "did you mean 'accuracy'?"),
        (["runs", "list", "--columns", "nam"], "did you mean 'name'?"),
        (["runs", "list", "--registry", "nothing"], "is a link that leads to nothing (gone)"),
        (["runs", "list", "--registry", "plain.pt"], "is a file"),
        (["runs", "tag", "tinny", "x"], "did you mean 'tiny'?"),
        (["runs", "tag", "tiny", "--remove", "x"], "tiny has no tag 'x'; it has none"),
        (["runs", "tag", "tiny", "a/b"], "'a/b' is no tag; use up to 100 letters"),
        (["runs", "delete", "tiny"], "needs an answer; add --yes"),
        (
            ["runs", "delete", "tiny", "--checkpoint", "last.pt", "--yes"],
            "is no global model that may be del",
        ),
        (["runs", "show", "plain.pt", "--provenance"], "register it with `fedscope runs add`"),
        (["runs", "show", "cut.pt", "--provenance"], "truncated or damaged"),
        (["runs", "show", "x.json", "--provenance"], "no such file"),
        (["runs", "verify", "tinny"], "did you mean 'tiny'?"),
        (
            ["runs", "show", "tiny", "--registry", "nowhere"],
            "name another registry with --registry or FEDSCOP",
        ),
        (["hessian", "--registry", "nowhere"], "name another registry with --registry or FEDSCOPE_REGISTRY"),
        (["train", "--config", "empty.toml"], "--config empty.toml sets nothing; write options as `rounds ="),
        (["train", "--config", "nowhere.toml"], "no such file: nowhere.toml; "),
        (["train", "--method", "fedavg+"], "a name lacks beside a + of method 'fedavg+'; write it as fedavg"),
        (["train", "--partition", "dirichlet"], "did you mean 'dirichlet_balanced'?"),
        (["train", "--log", "tensorbord"], "did you mean 'tensorboard'?"),
        (["train", "--model", "own.py:net"], "--model takes a module, not a file: write own:net"),
        (["train", "--model", "a/own.py:net"], "--model takes a module, not a file: write a.own:net"),
        (["hessian", "plain.pt", "--model", "nomodule:net", "--data", "own:data"], "returned None; let it"),
        (["train", "--model", "nomodule:net"], "and among the installed packages"),
        (["train", "--data", "own:data"], "NoneType is no (inputs, targets), torch Dataset or DataLoader"),
        (
            ["runs", "add", "plain.pt", "--model", "own:net", "--dataset", "digits"],
            "fails on the first sampl",
        ),
        (["clients", "tiny@1"], "it has @final"),
        (["train", "--method", "fedprx"], "unknown method 'fedprx'; did you mean 'fedprox'?"),
        (["train", "--dataset", "mnist"], "unknown dataset 'mnist'; choose one of digits"),
        (["train", "--dataset", "cifar-10"], "unknown dataset 'cifar-10'; did you mean 'cifar10'?"),
        (["train", "--method", "fedavg+mam"], "unknown method 'mam'; did you mean 'man'?"),
        (["train", "--model", "resnet2O"], "unknown model 'resnet2O'; did you mean 'resnet20'?"),
        (["hessian", "--parameters", "stm.*"], "matches 'stm.*'; did you mean 'stem.*'"),
        (["train", "--dataset", "cifar100", "--data-dir", "nowhere"], "no such data folder: nowhere"),
        (["train", "--data-dir", "nowhere"], "no such data folder: nowhere"),
        (["train", "--model", "vgg"], "unknown model 'vgg'"),
        (["train", "--set", "prox.mu=1"], "which is of fedprox: train with --method fedavg+fedprox"),
        (["train", "--method", "fedprox", "--set", "prox.mu"], "as OPTION=VALUE"),
        (["train", "--clients", "200"], "1437 samples serve at most 143 clients, not 200"),
        (["train", "--clients", "2000", "--partition", "iid"], "2000 clients cannot share 1437 samples"),
        (["train", "--rounds", "0"], "--rounds takes a whole number from 1 up, not 0"),
        (["train", "--lr", "nan"], "--lr takes a number from 0 up, not nan"),
        (["train", "--name", "../up"], "is no run name"),
        (["train", "--name", "tiny"], "is taken; choose another --name"),
        (["train", "--resume"], "needs the --name"),
        (["train", "--device", "cuda:9000"], "there is no device"),
        (["train", "--nesterov"], "needs --momentum above 0"),
        (
            ["train", "--seed", "99999999999999999999"],
            "--seed takes a whole number from 0 and below 9",
        ),
        (["train", "--sampling", "bernoulli", "--participation", "1e-9"], "is nobody"),
        (["train", "--resume", "--name", "tinny"], "did you mean 'tiny'?"),
        (["hessian", "tiny@²"], "use @best, @final"),
        (["hessian", "--samples", "²"], "a number from 1 up, or all"),
        (["hessian", "--engine", "pyhessian", "--probes", "9"], "and --probes"),
        (["plot-landscape", *["tiny"] * 9], "up to 8 checkpoints"),
        (["train", "--device", "abacus"], "unknown device"),
        (["hessian", "missing.pt"], "no such file: missing.pt"),
        (["hessian", "tinny"], "did you mean 'tiny'?"),
        (["hessian", "cut.pt"], "truncated or damaged"),
        (["hessian", "evil.pt"], "asks to run code"),
        (["hessian", "plain.pt"], "add --model MODULE:FACTORY"),
        (["hessian", "plain.pt", "--model", "m:f"], "if it is not cross-entropy: add --data MODULE:FACTORY"),
        (["hessian", "plain.pt", "--data", "m:f"], "if it is not cross-entropy: add --model MODULE:FACTORY"),
        (["hessian", "plain.pt", "--model", "m:f", "--data", "m"], "takes MODULE:FUNCTION, such as mydata:"),
        (["hessian", "plain.pt", "--data", "cifar10"], "`fedscope runs add plain.pt --model NAME --dataset"),
        (["hessian", "plain.pt", "--model", "json:dump", "--data", "json:lod"], "did you mean 'load'?"),
        (["runs", "show", "plain.pt"], "`fedscope runs add plain.pt --model NAME --dataset NAME` registers"),
        (["runs", "show", "tiny@best"], "tiny@best names a checkpoint; name the run alone: tiny"),
        (["hessian", "tiny@"], "'tiny@' is half of RUN@WHICH"),
        (["train", "--name", ""], "'' is no run name"),
        (["hessian", "plain.pt", "--model", "m:f", "--data", "nomodule:f"], "No module named 'nomodule'"),
        (["hessian", "--samples", "some"], "a number from 1 up, or all"),
        (["hessian", "--engine", "pyhessian", "--density"], "drop --density"),
        (["hessian", "--bn", "batch"], "one batch"),
        (["hessian", "--figure", "d.gif"], "suffix .png, .pdf or .svg"),
        (["plot-landscape", "--out", "landscape.gif"], "suffix .png, .pdf or .svg"),
        (["plot-landscape", "--out", "plain.pt/landscape.png"], "cannot write plain.pt/landscape.png"),
        (["hessian", "--json=."], ". is a folder"),
        (["plot-landscape", "--grid", "2"], "--grid takes 3 to 1001 points along each axis, not 2"),
        (["plot-landscape", "--grid", "100000"], "--grid takes 3 to 1001 points along each axis, not 100000"),
        (["plot-landscape", "--grid", "41x"], "as 41 or 41x21, not '41x'"),
        (["plot-landscape", "--directions", "line", "tiny"], "line takes 2 checkpoints, not 1"),
        (["plot-landscape", "--directions", "points", "tiny", "tiny"], "points takes 3 checkpoints, not 2"),
        (["plot-landscape", "--directions", "pca"], "kept 0 of its rounds"),
        (["runs", "show", "none"], "no run 'none'"),
        (["hessian", "--tol", "nan"], "--tol takes a number, not nan"),
        (["plot-landscape", "--span", "nan"], "--span takes a number, not nan"),
        (["report", "--span", "nan"], "--span takes a number, not nan"),
        (["hessian", "tiny@best@client1"], "did you mean 'tiny@client1'?"),
        (["hessian", "here/tiny"], "here/tiny is the folder of a run; name the run: tiny"),
        (["runs", "show", "here/tiny"], "here/tiny is the folder of a run; name the run: tiny"),
        (["hessian", "here/tiny", "--registry", "own"], "name the run: tiny --registry here"),
    ],
)
def test_what_the_user_can_mend_is_one_line_and_code_2(
    fedscope: Command, run: RunFolder, arguments: list[str], message: str
) -> None:
    Path("cut.pt").write_bytes(run.final.read_bytes()[:5000])
    Path("evil.pt").write_bytes(pickle.dumps(Poison()))
    torch.save({"weight": torch.ones(2)}, "plain.pt")
    Path("own.py").write_text(OWN)
    Path("empty.toml").write_text("# nothing\n")
    Path("nothing").symlink_to("gone")
    Path("here").symlink_to(run.folder.parent)
    before = sorted(run.folder.parent.glob("*/"))
    done = fedscope(*arguments)
    lines = [line for line in done.err.splitlines() if not line.startswith("tiny@")]
    assert (done.code, done.out, len(lines)) == (2, "", 1)
    assert lines[0].startswith("Error: ")
    assert message in lines[0]
    assert not Path("canary").exists()
    assert sorted(run.folder.parent.glob("*/")) == before


def test_our_own_fault_is_code_1(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("fedscope.checkpoints.registry.run_registry.RunRegistry.newest_rows", broken)
    done = fedscope("runs", "list")
    assert done.code == 1
    assert "ZeroDivisionError: oops" in done.err
    assert done.err.splitlines()[-1].startswith("Error: this is a fault of fedscope")


def test_an_interrupt_says_how_to_go_on(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedscope.checkpoints.registry.run_registry.RunRegistry.newest_rows", interrupted)
    done = fedscope("runs", "list")
    assert (done.code, done.err) == (130, "Error: interrupted; run the same command again\n")


def test_an_interrupted_training_names_its_run(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fedscope.workflows.train.one_run.train", interrupted)
        done = fedscope("train", "-q", "--registry", "my runs", "--clients", "2")
    again = "fedscope train --resume --name fedavg-digits --registry 'my runs'"
    assert (done.code, done.err) == (130, f"Error: interrupted; go on with `{again}`\n")
    assert fedscope(*shlex.split(again)[1:], "--rounds", "1").err.startswith("Error: cannot resume")


@pytest.mark.parametrize("module", ["click", "rich.console", "pydantic", "torch", "torch.nn"])
def test_an_interrupt_during_an_import_is_one_line(module: str, tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
from fedscope.cli.main import run

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("swallowed")

sys.meta_path.insert(0, CtrlC())
run(["demo"])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Error: interrupted\n")


@pytest.mark.parametrize("group", [(), ("runs",), ("methods",), ("data",), ("presets",), ("figures",)])
def test_a_bare_group_prints_its_help_as_help(fedscope: Command, group: tuple[str, ...]) -> None:
    done, asked = fedscope(*group), fedscope(*group, "--help")
    assert (done.code, done.out) == (2, "")
    assert (asked.code, asked.err) == (0, "")
    assert done.err.split() == asked.out.split()
    assert "\nCommands:" in done.err


def test_the_installed_command_exits_with_the_code() -> None:
    done = subprocess.run([sys.executable, "-m", "fedscope", "nonsense"], capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert call(["--version"]) == 0
