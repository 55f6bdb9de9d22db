from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.landscape import Hessian, top_eigenpairs, trace
from fedscope.landscape.operators.progress_callback import Progress
from fedscope.reproduce.runs.measure_kinds import objective_surfaces, with_term
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source


@contextmanager
def silent(_title: str) -> Iterator[Progress]:
    yield lambda _done, _total=None, _text="", /: None


def test_the_parts_add_up_and_the_centre_is_the_objective(tmp_path: Path) -> None:
    settings = Settings(method="fedavg+man", model="mlp_digits", clients=2, rounds=1, train_samples=64)
    federation = prepare(settings, {"man.zeta": "0.3"})
    run = open_run(federation, RunRegistry(tmp_path), "r", resume=False)
    train(federation, run, lambda _: None)
    (problem,) = load([run.final], Source(samples=32, batch_size=32))
    record = objective_surfaces(problem, grid=3, span=1.0, stage=silent)
    loss, term, both = (torch.tensor(part.loss) for part in record.parts)
    torch.testing.assert_close(loss + term, both, rtol=1e-5, atol=1e-6)
    assert [part.center_loss for part in record.parts] == [
        pytest.approx(float(values[1, 1])) for values in (loss, term, both)
    ]
    images, labels = next(iter(problem.batches))
    flat, norms = images.flatten(1), []
    layers = [m for m in problem.model.modules() if isinstance(m, torch.nn.Linear)]
    for layer in layers[:-1]:
        flat = torch.relu(layer(flat))
        norms.append(flat.square().mean())
    with torch.no_grad():
        assert float(term[1, 1]) == pytest.approx(0.3 * float(sum(norms)), rel=1e-5)
        assert float(loss[1, 1]) == pytest.approx(
            float(cross_entropy(problem.model(images), labels)), rel=1e-5
        )


def test_the_curvature_with_the_term_is_that_of_the_sum(tmp_path: Path) -> None:
    """Products against autograd's own Hessian of cross-entropy plus the term, written out."""
    settings = Settings(method="fedavg+man", model="mlp_digits", clients=2, rounds=1, train_samples=64)
    federation = prepare(settings, {"man.zeta": "0.3"})
    run = open_run(federation, RunRegistry(tmp_path), "r", resume=False)
    train(federation, run, lambda _: None)
    (problem,) = load([run.final], Source(samples=32, batch_size=16, dtype=torch.float64))
    added = with_term(problem)
    operator = Hessian(added.model, added.loss_fn, added.batches)
    names = [name for name, _ in problem.model.named_parameters()]
    layers = [name for name, m in problem.model.named_modules() if isinstance(m, torch.nn.Linear)]
    pairs = list(problem.batches)
    images, labels = (torch.cat(parts) for parts in zip(*pairs, strict=True))

    def loss(*values: torch.Tensor) -> torch.Tensor:
        weights = dict(zip(names, values, strict=True))
        out, norms = images.flatten(1), []
        for layer in layers:
            out = out @ weights[f"{layer}.weight"].T + weights[f"{layer}.bias"]
            if layer != layers[-1]:
                out = torch.relu(out)
                norms.append(out.square().mean())
        return cross_entropy(out, labels) + 0.3 * torch.stack(norms).sum()

    values = tuple(p.detach() for p in problem.model.parameters())
    direction = torch.randn(
        operator.shape[0], dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    pieces = direction.split([value.numel() for value in values])
    tangents = tuple(piece.view_as(value) for piece, value in zip(pieces, values, strict=True))
    _, expected = torch.autograd.functional.hvp(loss, values, tangents)
    assert isinstance(expected, tuple)
    found = operator.matvec(direction)
    torch.testing.assert_close(found, torch.cat([one.flatten() for one in expected]), rtol=1e-9, atol=1e-10)
    assert added.description["loss"] == "cross-entropy + MAN term"
    plain = Hessian(problem.model, problem.loss_fn, problem.batches).matvec(direction)
    assert not torch.allclose(found, plain, rtol=1e-3)


class Decayed(torch.nn.Module):
    """A network that also returns ½ w ‖θ‖²."""

    def __init__(self, network: torch.nn.Module, decay: float) -> None:
        super().__init__()
        self.network, self.decay = network, decay

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        squares = torch.stack([p.square().sum() for p in self.network.parameters()])
        return self.network(images), 0.5 * self.decay * squares.sum()


def test_weight_decay_adds_itself_to_each_eigenvalue_and_n_times_to_the_trace(run: RunFolder) -> None:
    """What the readings of a table add without a measurement."""
    (problem,) = load([run.final], Source(samples=32, batch_size=32, dtype=torch.float64))
    decayed = Decayed(problem.model, 0.05).eval()
    with_it = Hessian(decayed, lambda out, y: cross_entropy(out[0], y) + out[1], problem.batches)
    without = Hessian(problem.model, problem.loss_fn, problem.batches)
    draw = torch.Generator()
    top, plain_top = (
        float(top_eigenpairs(op, k=1, tol=1e-8, generator=draw.manual_seed(3)).values[0])
        for op in (with_it, without)
    )
    assert top - plain_top == pytest.approx(0.05, rel=1e-6)
    total, plain_total = (
        trace(op, probes=3, generator=draw.manual_seed(3)).value for op in (with_it, without)
    )
    assert total - plain_total == pytest.approx(0.05 * without.shape[0], rel=1e-6)


def test_a_run_without_man_has_no_term(run: RunFolder) -> None:
    (problem,) = load([run.final], Source(samples=16))
    with pytest.raises(UserError, match="MAN"):
        objective_surfaces(problem, grid=3, span=1.0, stage=silent)
    with pytest.raises(UserError, match="MAN"):
        with_term(problem)
