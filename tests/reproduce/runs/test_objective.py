from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.schema import Settings
from fedscope.checkpoints.registry.registry import Registry, Run
from fedscope.errors import UserError
from fedscope.federated.server.rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.landscape.operators.progress import Progress
from fedscope.reproduce.runs.objective import objective_surfaces
from fedscope.workflows.sources.problem import load
from fedscope.workflows.sources.samples import Source


@contextmanager
def silent(_title: str) -> Iterator[Progress]:
    yield lambda _done, _total=None, _text="", /: None


def test_the_parts_add_up_and_the_centre_is_the_objective(tmp_path: Path) -> None:
    settings = Settings(method="fedavg+man", model="mlp_digits", clients=2, rounds=1, train_samples=64)
    federation = prepare(settings, {"man.zeta": "0.3"})
    run = open_run(federation, Registry(tmp_path), "r", resume=False)
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


def test_a_run_without_man_has_no_term(run: Run) -> None:
    (problem,) = load([run.final], Source(samples=16))
    with pytest.raises(UserError, match="MAN"):
        objective_surfaces(problem, grid=3, span=1.0, stage=silent)
