"""What records of other packages may ask for beyond fedscope's own methods, run through the trainer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.federated.methods import METHODS, known
from fedscope.federated.record.method import Method
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Finish, Pass, Sending, ServerStep, Stack
from fedscope.federated.setup.federation import prepare
from tests.federated.runs import interrupted, resumed, trained

SMALL = Settings(
    model="mlp_digits", method="mine", clients=4, participation=0.5, rounds=3, epochs=1, lr=0.05,
    train_samples=200, test_samples=50, save_clients="all",
)  # fmt: skip
Register = Callable[..., None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Register]:
    """Make a record one of the methods."""

    def add(**fields: Any) -> None:
        record = Method(name="mine", objective="ℓ(w)", source="a test", **fields)
        monkeypatch.setitem(METHODS, "mine", record)
        known.cache_clear()

    yield add
    known.cache_clear()


def flat(path: Path) -> Tensor:
    """Return the parameters of a checkpoint as one vector, in float64."""
    return torch.cat([tensor.double().flatten() for tensor in load_checkpoint(path).state.values()])


def weights(run: RunFolder) -> str:
    return load_checkpoint(run.final).sha256


def ahead(at: Sending) -> Tensor:
    """FedACG (Kim et al. 2024): clients start where the momentum leads."""
    return at.kept + 0.8 * at.state["m"]


def accelerated(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    m = 0.8 * step.state["m"] + step.mean - step.anchor
    return step.kept + m, {"m": m}


def test_a_server_keeps_one_model_and_sends_another(register: Register, tmp_path: Path) -> None:
    register(server=accelerated, sends=ahead, server_state=(Vector("m"),))
    run = trained(tmp_path, SMALL.model_copy(update={"keep_every": 1}), name="whole")
    theta = [flat(run.initial), *(flat(run.after_round(round)) for round in (1, 2)), flat(run.final)]
    sent = [flat(run.anchor(round)) for round in (1, 2, 3)]
    for t in (1, 2):  # θ_t = θ_{t−1} + m_t, so that the clients of round t + 1 start at θ_t + 0.8 m_t
        torch.testing.assert_close(sent[t], theta[t] + 0.8 * (theta[t] - theta[t - 1]), atol=1e-6, rtol=1e-5)
        assert not torch.equal(sent[t], theta[t])
    assert torch.equal(sent[0], theta[0])
    assert list(verify_run(run)) == []


def test_resumed_it_sends_the_same(register: Register, tmp_path: Path) -> None:
    register(server=accelerated, sends=ahead, server_state=(Vector("m"),))
    whole = trained(tmp_path, SMALL, name="whole")
    run = interrupted(tmp_path, SMALL, after=2)
    resumed(tmp_path, SMALL)
    assert weights(run) == weights(whole)


def test_an_average_is_kept_and_the_model_is_trained(register: Register, tmp_path: Path) -> None:
    """Clients start from the model of FedAvg's run, the server keeps the mean of the models so far."""
    register(averages=lambda at: at.average + (at.model - at.average) / at.round)
    settings = SMALL.model_copy(update={"keep_every": 1})
    run = trained(tmp_path, settings, name="averaged")
    plain = trained(tmp_path, settings.model_copy(update={"method": "fedavg"}), name="plain")
    models = [flat(plain.after_round(round)) for round in (1, 2, 3)]
    for t in (1, 2, 3):
        torch.testing.assert_close(
            flat(run.after_round(t)), torch.stack(models[:t]).mean(0), rtol=0, atol=1e-7
        )
    for t in (2, 3):
        assert torch.equal(flat(run.anchor(t)), models[t - 2])
    assert list(verify_run(run)) == []
    cut = interrupted(tmp_path, settings, after=2)
    resumed(tmp_path, settings)
    assert weights(cut) == weights(run)


@pytest.mark.parametrize("stack", [1, 2])
def test_a_second_loss_is_differentiated_and_the_gradient_mapped(
    register: Register, tmp_path: Path, stack: int
) -> None:
    """Half the loss's gradient, by a second loss of half its value or by a map, at half of twice the rate."""

    def half(at: Pass) -> Tensor:
        return 0.5 * at.loss

    settings = SMALL.model_copy(update={"stack": stack, "rounds": 1})
    register(ascent_loss=half, gradient_at=lambda gradient, at: gradient(at.parameters, ascent=True))
    second = trained(tmp_path, settings, name="second")
    register(gradient_maps=(lambda at: 0.5 * at.gradient,))
    mapped = trained(tmp_path, settings, name="mapped")
    register(local_rate=lambda done, options: 0.5)
    slower = trained(tmp_path, settings, name="slower")
    register(round_rates=(lambda round, options: 0.25, lambda round, options: 2.0))
    later = trained(tmp_path, settings, name="later")
    plain = settings.model_copy(update={"method": "fedavg", "lr": 0.5 * settings.lr})
    expected = flat(trained(tmp_path, plain, name="plain").final)
    for run in (second, mapped, slower, later):
        torch.testing.assert_close(flat(run.final), expected, atol=1e-6, rtol=1e-5)
    assert slower.metrics()[0].train_loss == pytest.approx(mapped.metrics()[0].train_loss)


@pytest.mark.parametrize("method", ["fedcm", "scaffold"])
def test_factors_of_rounds_are_in_every_rate_that_a_method_reads(
    register: Register, tmp_path: Path, method: str
) -> None:
    """FedCM's server divides by η_t and SCAFFOLD's client too; half of the rate is half of the rate."""
    register(round_rates=(lambda round, options: 0.5,))
    settings = SMALL.model_copy(update={"rounds": 3})
    both = settings.model_copy(update={"method": f"{method}+{settings.method}"})
    run = trained(tmp_path, both, name="both")
    plain = settings.model_copy(update={"method": method, "lr": 0.5 * settings.lr})
    expected = trained(tmp_path, plain, name="plain")
    torch.testing.assert_close(flat(run.final), flat(expected.final), atol=0, rtol=0)
    assert [m.lr for m in run.metrics()] == [m.lr for m in expected.metrics()]


def test_logits_are_changed_in_the_loss_alone(register: Register, tmp_path: Path) -> None:
    """A constant on all logits changes nothing; a factor does, and the reported loss is the network's own."""
    settings = SMALL.model_copy(update={"rounds": 1, "lr": 0.0})
    losses = []
    for factor in (1.0, 3.0):
        register(logits=(lambda logits, counts, options, factor=factor: factor * logits + 2.0,))
        losses.append(trained(tmp_path, settings, name=f"times-{factor:g}").metrics()[0].train_loss)
    assert losses[0] == pytest.approx(losses[1])


def heavy_ball(at: Stack) -> dict[str, Tensor]:
    assert at.gradient is not None
    return {"v": 0.9 * at.state["v"] + at.gradient}


def momentum(at: Stack) -> Tensor:
    assert at.gradient is not None
    return at.state["v"] - at.gradient


@pytest.mark.parametrize("stack", [1, 2])
def test_state_of_a_step_is_momentum_s_written_as_a_method(
    register: Register, tmp_path: Path, stack: int
) -> None:
    """SGD with momentum β keeps v = βv + g through a round, and begins the next one at zero."""
    register(step_state=(Vector("v"),), each_step=(heavy_ball,), after_clip=(momentum,))
    settings = SMALL.model_copy(update={"stack": stack})
    mine = trained(tmp_path, settings, name="mine")
    sgd = trained(tmp_path, settings.model_copy(update={"method": "fedavg", "momentum": 0.9}), name="sgd")
    torch.testing.assert_close(flat(mine.final), flat(sgd.final), atol=1e-6, rtol=1e-5)
    plain = trained(tmp_path, settings.model_copy(update={"method": "fedavg"}), name="plain")
    assert not torch.allclose(flat(mine.final), flat(plain.final), atol=1e-4)


@pytest.mark.parametrize("stack", [1, 2])
def test_the_classes_of_a_client_s_rows_are_counted(register: Register, tmp_path: Path, stack: int) -> None:
    seen: list[Tensor] = []

    def calibrated(at: Pass) -> Tensor:
        """FedLC's margin (Zhang et al. 2022) needs the counts of each class."""
        return (at.logits.mean(0) * at.label_counts).sum() * 0

    def note(at: Finish) -> dict[str, Tensor]:
        seen.extend(at.label_counts.clone())
        return {}

    register(label_counts=True, task_terms=(calibrated,), finish=(note,))
    federation = prepare(SMALL.model_copy(update={"stack": stack, "rounds": 1, "partition": "iid"}), {})
    run = trained(tmp_path, SMALL, name="counted", federation=federation)
    (line,) = run.metrics()
    sampled, labels = line.clients, federation.training.labels
    assert isinstance(sampled, list)
    held = [federation.rows[client] for client in sampled]
    for counts, rows in zip(seen, held, strict=True):
        assert counts.tolist() == torch.bincount(labels[rows], minlength=10).tolist()


def test_vectors_by_the_names_of_their_tensors(register: Register, tmp_path: Path) -> None:
    shapes: dict[str, tuple[int, ...]] = {}

    def frozen_first(at: Stack) -> Tensor:
        correction = torch.zeros_like(at.parameters)
        assert at.gradient is not None
        gradients, changes = at.tensors(at.gradient), at.tensors(correction)
        shapes.update({name: tuple(change.shape) for name, change in changes.items()})
        first = next(iter(changes))
        changes[first].copy_(-gradients[first])
        return correction

    register(after_clip=(frozen_first,))
    run = trained(tmp_path, SMALL.model_copy(update={"rounds": 1}), name="named")
    state, first = load_checkpoint(run.final).state, load_checkpoint(run.initial).state
    frozen = next(iter(shapes))
    assert shapes == {name: (1, *tensor.shape) for name, tensor in state.items()}
    moved = {name: float((state[name] - first[name]).abs().max()) for name in state}
    assert moved.pop(frozen) < 1e-5  # its gradient was taken away
    assert min(moved.values()) > 1e-4
