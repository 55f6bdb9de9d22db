"""The conformance suite on methods of the package, and on methods that break one law each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from fedscope.federated.methods import known, parse
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import LocalStep, Pass, Sending, ServerStep, Stack, Term
from fedscope.testing import MethodConformance

LAWS = [name for name in vars(MethodConformance) if name.startswith("test_")]


class TestFedAvg(MethodConformance):
    def method(self) -> Method:
        return parse("fedavg")


class TestTermsMemoryAndAServerRule(MethodConformance):
    def method(self) -> Method:
        return parse("feddyn+fedsam")


class TestUploadsBesideTheModel(MethodConformance):
    def method(self) -> Method:
        return parse("scaffold")


class TestPersonalTensors(MethodConformance):
    settings: ClassVar[dict[str, Any]] = {"model": "resnet_digits"}

    def method(self) -> Method:
        return parse("fedprox+fedbn")


class TestWhatIsDrawn(MethodConformance):
    def method(self) -> Method:
        return parse("mixup")


def momentum(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    m = 0.8 * step.state["m"] + step.mean - step.anchor
    return step.kept + m, {"m": m}


def accelerated(sends: Callable[[Sending], Tensor]) -> Method:
    return mine(server=momentum, sends=sends, server_state=(Vector("m"),))


class TestAServerThatSendsAnotherModel(MethodConformance):
    def method(self) -> Method:
        return accelerated(lambda at: at.kept + 0.8 * at.state["m"])


class TestASumOfWhichAPartIsNotInstalled(MethodConformance):
    def method(self) -> Method:
        return parse("fedprox") + accelerated(lambda at: at.kept + 0.8 * at.state["m"])


@dataclass
class Suite(MethodConformance):
    made: Callable[[], Method]

    def method(self) -> Method:
        return self.made()


def mine(**fields: Any) -> Method:
    return Method(**{"name": "mine", "objective": "ℓ(w)", "source": "a test", **fields})


def broken(made: Callable[[], Method]) -> list[str]:
    """Return the laws that do not hold."""
    found = []
    for law in LAWS:
        try:
            getattr(Suite(made), law)()
        except AssertionError:
            found.append(law)
    return found


def whole_norm(at: Stack) -> Tensor:
    found: Tensor = at.parameters * (10 / at.parameters.norm())
    return found


def detached(at: Term) -> Tensor:
    return (at.parameters.detach() - at.anchor).square().sum() + 0 * at.parameters.sum()


def overwriting(at: Stack) -> Tensor:
    at.anchor.add_(0.01)
    return torch.zeros_like(at.parameters)


def from_the_global_generator(at: Pass) -> Tensor:
    return at.loss * torch.rand(())


def remembering() -> Method:
    """One that counts its steps beside the declared memory: a resumed run begins the count anew."""
    steps: list[LocalStep] = []

    def later(steps: list[LocalStep], _generator: object, _values: Values, *_: object) -> int:
        steps.append(None)  # type: ignore[arg-type]
        return len(steps)

    return mine(
        draws={"mine": partial(later, steps)}, task_terms=(lambda at: at.loss * 0.01 * at.drawn["mine"],)
    )


@pytest.mark.parametrize(
    ("made", "laws"),
    [
        (lambda: mine(), []),
        (lambda: mine(source=""), ["test_it_says_what_it_is"]),
        (lambda: mine(options=(Option("mine.a", 5, "a", within=(0, 1)),)), ["test_it_says_what_it_is"]),
        (lambda: mine(after_clip=(whole_norm,)), ["test_clients_side_by_side_are_clients_one_by_one"]),
        (
            lambda: mine(parameter_terms=(detached,)),
            ["test_the_terms_of_the_parameters_have_their_gradients"],
        ),
        (
            lambda: accelerated(lambda at: at.kept),
            ["test_what_is_sent_is_another_model_than_the_server_keeps"],
        ),
        (lambda: mine(after_clip=(overwriting,)), ["test_what_a_client_received_is_left_as_it_is"]),
    ],
)
def test_a_broken_method_fails_its_law_alone(made: Callable[[], Method], laws: list[str]) -> None:
    assert broken(made) == laws


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An older record of the name ``mine``, which trains as FedAvg does."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "older.py").write_text(
        "from fedscope.federated.record.method import Method\n"
        "MINE = Method(name='mine', objective='older', source='older')\n"
    )
    info = tmp_path / "older-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: older\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fedscope.methods]\nmine = older:MINE\n")
    known.cache_clear()
    yield
    known.cache_clear()


@pytest.mark.usefixtures("installed")
def test_the_record_under_test_is_trained_not_an_installed_one_of_its_name() -> None:
    assert isinstance(known()["mine"], Method)
    nan = mine(server=lambda step: (step.mean * float("nan"), {}))
    assert "test_two_rounds_end_at_a_finite_model" in broken(lambda: nan)
    assert parse("mine").objective == "older"


def test_a_sum_that_breaks_fails_its_law() -> None:
    def alone(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
        if "prox.mu" in step.options:
            raise RuntimeError("not with another method")
        return step.mean, {}

    assert broken(lambda: mine(server=alone)) == ["test_with_fedprox_it_trains_or_is_refused"]
    assert broken(lambda: mine(options=(Option("prox.mu", 1.0, "a"),))) == []  # refused: the name is taken


def test_a_sum_with_fedavg_changes_nothing() -> None:
    def once(at: LocalStep) -> Tensor:
        return at.parameters.sum() * len(made)

    made: list[int] = []

    def record() -> Method:
        made.append(1)
        return mine(parameter_terms=(once,))

    assert "test_on_fedavg_it_is_what_it_is_alone" in broken(record)


def test_a_fault_in_a_function_is_a_failure() -> None:
    record = mine(server=lambda step: (step.mean[:-1], {}))
    with pytest.raises(AssertionError, match=r"method mine: server .* takes a tensor"):
        Suite(lambda: record).test_two_rounds_end_at_a_finite_model()


def test_chance_from_elsewhere_is_found() -> None:
    law = "test_the_same_run_has_the_same_bits"
    assert law in broken(lambda: mine(task_terms=(from_the_global_generator,), subnetworks=True))


def test_memory_from_elsewhere_is_found() -> None:
    record = remembering()
    assert "test_a_resumed_run_has_the_bits_of_an_uninterrupted_one" in broken(lambda: record)
