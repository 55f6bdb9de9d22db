"""Completion by the protocol that the shells' scripts speak."""

from collections.abc import Callable

import pytest

from tests.cli.conftest import Command


@pytest.fixture
def complete(fedscope: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], set[str]]:
    def ask(line: str) -> set[str]:
        words = line.split(" ")
        with monkeypatch.context() as patch:
            patch.setenv("_FEDSCOPE_COMPLETE", "bash_complete")
            patch.setenv("COMP_WORDS", line)
            patch.setenv("COMP_CWORD", str(len(words) - 1))
            done = fedscope()
        assert (done.code, done.err) == (0, "")
        return set(done.out.split())

    return ask


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("fedscope hess", {"plain,hessian"}),
        ("fedscope runs sh", {"plain,show"}),
        ("fedscope runs show ti", {"plain,tiny", "file,ti"}),
        ("fedscope hessian tiny@b", {"plain,tiny@best"}),
        ("fedscope hessian tiny@client", {f"plain,tiny@client{k}" for k in range(3)}),
        ("fedscope hessian none@", set()),
        ("fedscope runs diff t", {"plain,tiny"}),
        ("fedscope train --method fedpr", {"plain,fedprox"}),
        ("fedscope train --method fedavg+ma", {"plain,fedavg+man"}),
        ("fedscope train --dataset cifar10", {"plain,cifar10", "plain,cifar100"}),
        ("fedscope train --model resnet_", {"plain,resnet_digits"}),
        (
            "fedscope train --preset fedalign/t7/c",
            {"plain,fedalign/t7/cifar10/C16", "plain,fedalign/t7/cifar10/C64s100"},
        ),
        ("fedscope models show resnet2", {"plain,resnet20"}),
        ("fedscope train --eval-m", {"plain,--eval-model"}),
        ("fedscope hessian --oper", {"plain,--operator"}),
        ("fedscope hessian --operator f", {"plain,fisher"}),
        ("fedscope train --log w", {"plain,wandb"}),
    ],
)
def test_names_are_completed(complete: Callable[[str], set[str]], line: str, found: set[str]) -> None:
    assert complete(line) == found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(fedscope: Command, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("_FEDSCOPE_COMPLETE", f"{shell}_source")
    monkeypatch.setattr("click.shell_completion.BashComplete._check_version", staticmethod(lambda: None))
    done = fedscope()
    assert done.code == 0
    assert "_FEDSCOPE_COMPLETE" in done.out
