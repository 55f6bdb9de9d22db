"""λ_max as an adaptive server feels it: its own step by name, a dense oracle, and what the registry keeps."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch.func import functional_call, hessian
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.file.state_folder import read_state, server_vectors
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.workflows.curvature.hessian_command import curvature
from fedscope.workflows.requests import Request
from fedscope.workflows.run_records import _curvature
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.sources.problems import problems
from fedscope.workflows.sources.server_state import adaptive_server
from fedscope.workflows.sources.targets import Targets

SETTINGS = Settings(
    method="fedadam", clients=2, rounds=3, epochs=1, batch_size=64, train_samples=200, test_samples=20,
    keep_every=2, lr=0.02, model="resnet_digits",
)  # fmt: skip


@pytest.fixture(scope="module")
def adam(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    federation = prepare(SETTINGS, {"adam.gamma": "0.02"})
    found = open_run(federation, RunRegistry(tmp_path_factory.mktemp("registry")), "adam", resume=False)
    train(federation, found, lambda _: None)
    return found


def _targets(run: RunFolder, which: str = "") -> Targets:
    return Targets(run.root, (f"{run.name}{which}",), samples=64, batch_size=16, threads=1, dtype="float64")


def test_the_scale_is_that_of_the_servers_own_step_name_by_name(adam: RunFolder) -> None:
    """The weights moved by γ m/(√s + ε); kernels lie otherwise in the server's vectors."""
    (problem,) = problems(_targets(adam, "@3"))
    server = adaptive_server(problem)
    folder = adam.folder / "state" / "round-0003"
    m = server_vectors(folder, read_state(folder))["adam.m"]
    before, after = (load_checkpoint(path).state for path in (adam.after_round(2), adam.final))
    names = [name for name, p in problem.model.named_parameters() if p.requires_grad]
    moved = torch.cat([(after[n].double() - before[n].double()).flatten() for n in names])
    flat = torch.cat([server.scale[name].flatten() for name in names])
    assert not torch.equal(flat, flat.flip(0))
    wanted = 0.02 * m  # the same numbers, in the server's order
    torch.testing.assert_close(
        (moved * flat).sort().values, wanted.sort().values, rtol=0, atol=1e-4 * float(wanted.abs().max())
    )
    steps = -(-100 // 64)
    assert (server.steps, server.beta1, server.gamma) == (steps, 0.9, 0.02)
    assert server.rate == pytest.approx(0.02 * 0.02 * steps)


def test_the_value_is_that_of_the_dense_matrix_and_rounds_keep_their_state(adam: RunFolder) -> None:
    request = Request(probes=2, preconditioned=True, parameters=("fc.*",), tol=1e-9)
    (found,) = curvature(_targets(adam, "@2"), request)
    entry = found.record.preconditioned
    assert entry
    problem, server = found.problem, adaptive_server(found.problem)
    tensors = dict(problem.model.named_parameters())
    chosen = {name: tensors[name].detach() for name in tensors if name.startswith("fc.")}
    inputs, labels = (torch.cat(parts) for parts in zip(*problem.batches, strict=True))

    def loss(vector: torch.Tensor) -> torch.Tensor:
        pieces = vector.split([p.numel() for p in chosen.values()])
        shaped = {name: v.view_as(chosen[name]) for name, v in zip(chosen, pieces, strict=True)}
        return cross_entropy(functional_call(problem.model, {**tensors, **shaped}, (inputs,)), labels)

    H = hessian(loss)(torch.cat([p.flatten() for p in chosen.values()])).detach()
    root = torch.cat([server.scale[name].flatten() for name in chosen]) ** -0.5
    top = float(torch.linalg.eigvalsh(root[:, None] * H * root)[-1])
    assert entry.lambda_max.value == pytest.approx(top, rel=1e-8)
    assert entry.stable == pytest.approx(38 / server.rate)
    drawn, error = _curvature(found.record)["preconditioned"], entry.lambda_max.error  # in its stable units
    assert error
    assert drawn["value"] == pytest.approx(entry.lambda_max.value / entry.stable)
    assert (drawn["stderr"], drawn["dof"]) == (pytest.approx(error[0] / entry.stable), error[1])
    (again,) = curvature(_targets(adam, "@2"), request)
    assert again.record.reused
    assert again.record.preconditioned == entry
    (plain,) = curvature(_targets(adam, "@2"), replace(request, preconditioned=False))
    assert plain.record.reused  # of the record with more in it
    assert plain.record.preconditioned is None


def _as_if(problem: Problem, **settings: object) -> Problem:
    """Return a problem whose run had other settings."""
    assert problem.info
    changed = problem.info.settings.model_copy(update=settings)
    return replace(problem, info=problem.info.model_copy(update={"settings": changed}))


def test_the_rate_counts_the_steps_that_were_taken(adam: RunFolder) -> None:
    (problem,) = problems(_targets(adam, "@3"))
    for settings, steps in (({"epochs": 3}, 3 * 2), ({"local_steps": 5}, 5)):  # of 100 rows in batches of 64
        server = adaptive_server(_as_if(problem, **settings))
        assert server.steps == steps
        assert server.rate == pytest.approx(0.02 * 0.02 * steps)


@pytest.mark.parametrize(("name", "value"), [("optimizer", "adamw"), ("stragglers", 0.5)])
def test_local_steps_that_are_not_alike_or_not_sgd_s_are_refused(
    adam: RunFolder, name: str, value: object
) -> None:
    (problem,) = problems(_targets(adam, "@3"))
    with pytest.raises(UserError, match=f"adam has .*{'stragglers' if name == 'stragglers' else 'adamw'}"):
        adaptive_server(_as_if(problem, **{name: value}))


def test_what_has_no_such_server_or_state_is_refused(adam: RunFolder, run: RunFolder) -> None:
    request = Request(probes=2, preconditioned=True)
    with pytest.raises(UserError, match="was trained with fedavg"):
        curvature(replace(_targets(run), samples=32), request)
    with pytest.raises(UserError, match="before the first round"):
        curvature(_targets(adam, "@0"), request)
    shutil.rmtree(adam.folder / "state" / "round-0002")  # as of a run that an older version trained
    with pytest.raises(UserError, match="not what the server of adam remembered after round 2"):
        curvature(_targets(adam, "@2"), replace(request, probes=3))
