"""Settings in a TOML file: the order of precedence, what is refused, and a run from another run's file."""

from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunRegistry
from tests.cli.conftest import Command

HERE = ("--registry", "runs")
FILE = """
preset = "man/t1/cifar100/delta0.3"
method = "fedavg+man"
dataset = "digits"
model = "mlp_digits"
augmentation = "none"
clients = 3
participation = 1.0
rounds = 1
epochs = 1
batch-size = 64
nesterov = false

[options]
man.zeta = 0.25
"""


def test_the_command_line_comes_before_the_file_and_that_before_the_preset(fedscope: Command) -> None:
    Path("mine.toml").write_text(FILE)
    done = fedscope("train", "--config", "mine.toml", "--batch-size", "32", "--set", "man.half=false",
                    "--name", "a", *HERE)  # fmt: skip
    assert done.code == 0, done.err
    settings = RunRegistry(Path("runs")).run("a").manifest().settings
    assert (settings.batch_size, settings.clients, settings.clip) == (32, 3, 10.0)
    assert (settings.options["man.zeta"], settings.options["man.half"]) == (0.25, False)
    assert fedscope("train", "--config", "mine.toml", "--set", "man.zeta=0.5", "--name", "b", *HERE).code == 0
    assert RunRegistry(Path("runs")).run("b").manifest().settings.options["man.zeta"] == 0.5


def test_a_run_from_the_file_of_another_is_the_same_run(fedscope: Command) -> None:
    Path("mine.toml").write_text(FILE)
    assert fedscope("train", "--config", "mine.toml", "--name", "a", "--threads", "1", *HERE).code == 0
    exported = fedscope("runs", "export", "a", "--format", "config", "--out", "a.toml", *HERE)
    assert (exported.code, exported.out) == (0, "a.toml\n")
    assert fedscope("train", "--config", "a.toml", "--name", "b", *HERE).code == 0
    one, two = (RunRegistry(Path("runs")).run(name) for name in "ab")
    assert one.manifest().settings == two.manifest().settings
    assert two.manifest().preset is not None
    assert load_checkpoint(one.final).sha256 == load_checkpoint(two.final).sha256


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("round = 3", "mine.toml: train has no option 'round'; did you mean 'rounds'?"),
        ("rounds = 2.5", "'2.5' is not a valid integer"),
        ("rounds = true", "'true' is not a valid integer"),
        ("model = ['a']", "mine.toml: model is a number, a text, true or false"),
        ("resume = true", "train has no option 'resume'"),
        ("options = 3", "options is a table"),
        ("[options]\nman.zetta = 1\n", "man.zetta"),
        ("rounds 3", "mine.toml is no TOML: Expected '='"),
        ("sampling = 'al'", "'al' is not one of"),
    ],
)
def test_what_it_refuses(fedscope: Command, content: str, said: str) -> None:
    Path("mine.toml").write_text(content)
    done = fedscope("train", "--config", "mine.toml", *HERE)
    assert (done.code, said in done.err) == (2, True), done.err


def test_a_missing_file_is_named(fedscope: Command) -> None:
    done = fedscope("train", "--config", "none.toml", *HERE)
    assert (done.code, "no such file: none.toml; " in done.err) == (2, True)


@pytest.mark.parametrize("log", ['"nothing"', '["nothing"]'])
def test_an_option_that_may_be_given_several_times_is_a_text_or_a_list(fedscope: Command, log: str) -> None:
    Path("mine.toml").write_text(f"log = {log}\n{FILE}")
    done = fedscope("train", "--config", "mine.toml", "--name", "a", *HERE)
    assert (done.code, "nothing" in done.err, "iterable" in done.err) == (2, True, False), done.err
