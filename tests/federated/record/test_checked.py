"""Faults in another package's functions: each is named with its method, its field and its line."""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedscope.checkpoints.file.settings import Settings
from fedscope.errors import UserError
from fedscope.federated.methods import METHODS, on_trial
from fedscope.federated.record.checked import MethodError, checked
from fedscope.federated.record.method import Method
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Sending, ServerStep, Stack, Term
from tests.federated.runs import trained

SMALL = Settings(
    model="mlp_digits", method="mine", clients=2, participation=0.5, rounds=2, epochs=1, lr=0.05,
    train_samples=64, test_samples=32, batch_size=16,
)  # fmt: skip


def ahead(at: Sending) -> Tensor:
    return at.kept + 0.5 * at.state["m"]


def rule(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    return step.kept + step.mean - step.anchor, {"m": step.mean - step.anchor}


SENDING = Method("mine", "", "", server=rule, sends=ahead, server_state=(Vector("m"),))


def sending(**fields: Any) -> Method:
    return replace(SENDING, **fields)


def plain(**fields: Any) -> Method:
    return Method("mine", "", "", **fields)


def raising(_: object) -> Any:
    raise RuntimeError("no such thing")


def no_arguments() -> Any:
    raise AssertionError


@contextmanager
def leaving() -> Any:
    yield
    raise RuntimeError("not left")


def run(root: Path, record: Method, **settings: Any) -> None:
    with on_trial(record):
        trained(root, SMALL.model_copy(update=settings))


TENSOR = r"it takes a tensor \(\d+,\) of floating numbers"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (sending(sends=no_arguments), r"sends \(.*no_arguments\) fails: TypeError: .* 0 positional"),
        (sending(sends=lambda at: at.kept[:-1]), rf"sends .* returned a tensor .* of float64; {TENSOR}"),
        (sending(sends=lambda at: at.kept[None]), rf"sends .* a tensor \(1, \d+\) of float64; {TENSOR}"),
        (sending(sends=lambda at: at.kept.mean()), rf"sends .* a tensor \(\) of float64; {TENSOR}"),
        (sending(sends=lambda at: at.kept.long()), rf"sends .* of int64; {TENSOR}"),
        (sending(sends=lambda at: None), rf"sends .* returned nothing \(None\); {TENSOR}"),
        (sending(sends=lambda at: 0.5), rf"sends .* returned float 0.5; {TENSOR}"),
        (sending(sends=lambda at: (at.kept, {})), rf"sends .* returned a tuple of 2; {TENSOR}"),
        (
            sending(sends=lambda at: at.mean),
            r"sends .* AttributeError: .*'mean' \(.*test_checked.py, line \d+",
        ),
        (sending(sends=lambda at: at.state["mm"]), r"sends .* KeyError: 'mm' \(.*test_checked.py, line"),
        (sending(sends=raising), r"sends \(.*raising\) fails: RuntimeError: no such thing \(.*line \d+\)"),
        (
            sending(server=lambda s: s.kept),
            r"server .*returned a tensor .*; it takes the model and the state",
        ),
        (sending(server=lambda s: (s.kept[:-1], {})), rf"server .* returned a tensor .*; {TENSOR}"),
        (
            sending(server=lambda s: (s.kept, {"mm": s.kept})),
            "server .* returned 'mm', which is not declared; it takes .*some of m",
        ),
        (
            sending(server=lambda s: (s.mean, {})),
            "none of its functions returns 'm', which is in server_state",
        ),
        (
            sending(server=lambda s: (s.mean, {"m": s.mean[:3]})),
            rf"returned for 'm' a tensor \(3,\).*{TENSOR}",
        ),
        (sending(server_notes=(lambda s: {"n": s.mean},)), "server_notes .* 'n', which is not declared"),
        (plain(parameter_terms=(lambda at: at.parameters,)), "parameter_terms .* it takes a scalar"),
        (plain(parameter_terms=(lambda at: 0.0,)), r"parameter_terms .* returned float 0\.0; .*a scalar"),
        (plain(task_terms=(lambda at: at.logits,)), "task_terms .* it takes a scalar"),
        (plain(notes={"mine": lambda model, options: [1]}), r"notes\['mine'\] .* a list of labels"),
        (
            plain(notes={"mine": lambda model, options: ["a"]}),
            "none of its functions returns 'mine', which is in notes",
        ),
        (
            plain(batch_transform=lambda batch, drawn, options: replace(batch, labels=batch.labels[:-1])),
            r"batch_transform .* returned 16 images and 15 labels; it takes a Batch of as many labels",
        ),
        (
            plain(batch_transform=lambda batch, drawn, options: replace(batch, images=batch.images[:-1])),
            "batch_transform .* returned 15 images and 16 labels",
        ),
        (plain(after_clip=(lambda at: at.parameters[0],)), r"after_clip .* takes a tensor \(1, \d+\)"),
        (plain(after_momentum=(lambda at: 0.0,)), r"after_momentum .* returned float 0\.0"),
        (plain(gradient_at=lambda gradient, at: gradient), "gradient_at .* returned function .*a tensor"),
        (
            plain(gradient_at=lambda gradient, at: (gradient(at.parameters), {"v": at.parameters})),
            "gradient_at .* 'v', which is not declared",
        ),
        (
            plain(gradient_at=lambda gradient, at: gradient(at.parameters, ascent=True)),
            "gradient_at asks for ascent_loss, which is empty",
        ),
        (
            plain(
                gradient_at=lambda gradient, at: gradient(at.parameters, ascent=True),
                ascent_loss=lambda at: at.logits,
            ),
            "ascent_loss .* it takes a scalar",
        ),
        (plain(gradient_maps=(lambda at: at.gradient[0],)), r"gradient_maps .* takes a tensor \(1, \d+\)"),
        (
            plain(logits=(lambda logits, counts, options: logits[:, :2],)),
            r"logits .* takes a tensor \(16, 10\)",
        ),
        (plain(local_rate=lambda done, options: "fast"), "local_rate .* it takes a number"),
        (plain(round_rates=(lambda round, options: None,)), "round_rates .* it takes a number"),
        (plain(averages=lambda at: at.model[None]), rf"averages .* returned a tensor \(1, \d+\).*{TENSOR}"),
        (plain(finish=(lambda end: None,)), r"finish .* returned nothing \(None\); it takes a mapping"),
        (
            plain(finish=(lambda end: {"h": 1},)),
            "finish .* 'h', which is not declared; .* no state is declared",
        ),
        (
            plain(finish=(lambda end: {"h": end.weight},), uploads=(Vector("h", "number"),)),
            r"finish .* for 'h' int \d+; it takes a tensor \(1, 1\)",
        ),
        (plain(uploads=(Vector("h"),)), "none of its functions returns 'h', which is in uploads"),
        (plain(memory=(Vector("h"),)), "none of its functions returns 'h', which is in memory"),
        (plain(step_state=(Vector("v"),)), "none of its functions returns 'v', which is in step_state"),
        (
            plain(step_state=(Vector("v"),), each_step=(lambda at: {"w": at.parameters},)),
            "each_step .* 'w', which is not declared",
        ),
        (
            plain(batch_transform=lambda batch, drawn, options: batch.images),
            "batch_transform .* it takes a Batch",
        ),
        (plain(draws={"mine": raising}), r"draws\['mine'\] .* TypeError"),
        (
            plain(taps={"mine": lambda m, o: ["fc9"]}),
            r"taps\['mine'\] .* returned a list with 'fc9'; .*modules",
        ),
        (
            plain(masks={"mine": lambda m, o: "fc"}),
            r"masks\['mine'\] .* returned str 'fc'; .* a list of names",
        ),
        (plain(equal_steps=lambda options: 1), "equal_steps .* returned int 1; it takes True or False"),
        (plain(recalibration=lambda options: "on"), "recalibration .* it takes one of off, report, upload"),
        (
            plain(network_needs=(lambda options: {"hed": True},)),
            "network_needs .* one with 'hed'; .*head, keep",
        ),
        (plain(checks=(raising,)), "checks .* fails: TypeError"),
        (plain(forward_context=lambda model, drawn: leaving()), "forward_context .* RuntimeError: not left"),
        (plain(forward_context=lambda model, drawn: None), "forward_context .* it takes a context manager"),
    ],
)
def test_a_fault_names_the_method_and_the_field(record: Method, message: str, tmp_path: Path) -> None:
    with pytest.raises(MethodError, match=f"^method mine: .*{message}"):
        run(tmp_path, record)


@pytest.mark.parametrize("stack", [1, 2])
def test_what_is_right_trains(stack: int, tmp_path: Path) -> None:
    def term(at: Term) -> Tensor:
        return 1e-3 * (at.parameters - at.anchor).square().sum()

    def ascent(gradient: Callable[..., Tensor], at: Stack) -> Tensor:
        return gradient(at.parameters)

    record = sending(
        parameter_terms=(term,),
        gradient_at=ascent,
        step_state=(Vector("n", "number"),),
        each_step=(lambda at: {"n": at.state["n"] + 1},),
        uploads=(Vector("steps", "number"),),
        finish=(lambda end: {"steps": end.state["n"]},),
        sends=lambda at: ahead(at).float(),
    )
    run(tmp_path, record, stack=stack)


@pytest.mark.parametrize("stack", [1, 2])
def test_a_term_that_does_not_depend_on_w_has_no_gradient(stack: int, tmp_path: Path) -> None:
    run(tmp_path, plain(parameter_terms=(lambda at: at.anchor.sum(),)), stack=stack)


def test_what_the_user_is_told_is_told_as_it_is(tmp_path: Path) -> None:
    def refusing(*_: object) -> None:
        raise UserError("use another --model")

    with pytest.raises(UserError, match=r"^use another --model$"):
        run(tmp_path, plain(checks=(refusing,)))


def test_fedscope_s_own_functions_are_left_as_they_are() -> None:
    for record in METHODS.values():
        assert checked(record) == record
    both = checked(METHODS["fedprox"] + sending())
    assert both.parameter_terms == METHODS["fedprox"].parameter_terms
    assert both.sends is not ahead
    assert torch.equal(both.sends(Sending(torch.ones(2), {"m": torch.ones(2)}, {})), torch.full((2,), 1.5))  # type: ignore[misc]


def test_a_rate_may_be_a_whole_number() -> None:
    checked(plain(round_rates=(lambda round, options: 1,))).round_rates[0](1, {})
    with pytest.raises(MethodError, match="it takes a number"):
        checked(plain(round_rates=(lambda round, options: True,))).round_rates[0](1, {})
