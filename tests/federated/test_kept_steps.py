"""Models inside the clients' training: the bits of plain steps, the same files however a run is made."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.kept_steps import KeptSteps
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.addresses import address_of
from fedscope.checkpoints.registry.deletion import delete_clients, delete_steps
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.federated.setup.federation import open_run, prepare
from tests.federated.runs import interrupted, resumed, trained

BASE = Settings(
    clients=4, participation=1.0, rounds=3, local_steps=5, batch_size=16, threads=1, train_samples=200,
    test_samples=50, partition="iid", model="mlp_digits", keep_steps="2:0,2:1,3",
)  # fmt: skip
KEPT = [f"{r}:client{k}:step{s}" for r in (1, 3) for k in (0, 2) for s in (2, 4)]


def changed(**fields: Any) -> Settings:
    return BASE.model_copy(update=fields)


def hashes(run: RunFolder) -> dict[str, str]:
    """The content of every model inside the training, by its address."""
    return {str(address_of(path)): load_checkpoint(path).sha256 for path in run.steps()}


def weights(run: RunFolder) -> str:
    return load_checkpoint(run.final).sha256


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5:all:all", [5, 10]), ("3:1,7:2", [3, 6, 9]), ("10:7:all", [10]), ("11:all:all", []), ("1:6:2", []),
        ("1:7:3", []), (None, []),
    ],
)  # fmt: skip
def test_steps_are_counted_from_one(text: str | None, expected: list[int]) -> None:
    assert list(KeptSteps.parse(text).of(2, 7, 10)) == expected


@pytest.mark.parametrize("text", ["", "5", "0:1:1", "5:all", "5:1:0", "5:-1:1", "a:1:1", "5:1,:1"])
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="EVERY:CLIENTS:ROUNDS"):
        KeptSteps.parse(text)


@pytest.mark.parametrize(("text", "what"), [("1:4:1", "client 4"), ("1:0:4", "round 4 of 3")])
def test_clients_and_rounds_that_there_are_not_are_refused(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Settings.model_validate({**BASE.model_dump(), "keep_steps": text})


def test_they_are_the_models_of_plain_steps(tmp_path: Path) -> None:
    """One client that takes its whole data as one mini-batch: gradient descent, by plain autograd."""
    settings = changed(
        clients=1, rounds=1, train_samples=60, batch_size=60, lr=0.5, weight_decay=0.0, keep_steps="1:0:1"
    )
    run = trained(tmp_path, settings)
    federation = prepare(settings, {})
    split, rows, model = federation.dataset.train, federation.rows[0], federation.model
    images, labels = federation.pipeline.test(split.images, rows), split.labels[rows]
    assert run.steps_of(1, 0) == [1, 2, 3, 4, 5]
    for step in run.steps_of(1, 0):
        gradients = torch.autograd.grad(cross_entropy(model(images), labels), list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(gradient, alpha=0.5)
        loaded = load_checkpoint(run.step(1, 0, step))
        assert (loaded.info.step, loaded.info.client, loaded.info.round) == (step, 0, 1)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(loaded.state[name], parameter.detach(), rtol=1e-4, atol=1e-6)
    last, upload = (load_checkpoint(path).state for path in (run.step(1, 0, 5), run.client(0)))
    assert all(torch.equal(last[name], upload[name]) for name in upload)


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"method": "fedsam"}, {"method": "scaffold"}, {"stack": 2}, {"optimizer": "adam", "lr": 0.01},
        {"local_steps": None, "epochs": 2, "keep_steps": "3:0,2:1,3"},
        {"model": "resnet8", "method": "fedbn"},
    ],
)  # fmt: skip
def test_training_is_the_same_without_them(fields: dict[str, Any], tmp_path: Path) -> None:
    settings = changed(**fields)
    run = trained(tmp_path, settings)
    plain = trained(tmp_path, settings.model_copy(update={"keep_steps": None}), name="plain")
    assert weights(run) == weights(plain)
    assert plain.steps() == []
    assert len(run.steps()) == 8
    assert len(set(hashes(run).values())) == 8
    assert not list(verify_run(run))


def test_a_stack_keeps_the_steps_of_its_own_clients(tmp_path: Path) -> None:
    alone, together = (trained(tmp_path, changed(stack=k), name=f"s{k}") for k in (1, 4))
    assert [*hashes(alone)] == [*hashes(together)] == KEPT
    for path in alone.steps():
        one = load_checkpoint(path).state
        other = load_checkpoint(together.folder / path.relative_to(alone.folder)).state
        for name, tensor in one.items():
            torch.testing.assert_close(other[name], tensor, rtol=1e-3, atol=1e-5)


def test_a_run_taken_up_again_has_the_same_files(tmp_path: Path) -> None:
    whole = trained(tmp_path, BASE, name="whole")
    cut = interrupted(tmp_path, BASE)
    resumed(tmp_path, BASE)
    assert hashes(whole) == hashes(cut)
    assert whole.metrics()[0].local_steps == [5, 5, 5, 5]


def test_a_straggler_has_as_many_as_it_made(tmp_path: Path) -> None:
    run = trained(tmp_path, changed(stragglers=0.75, keep_steps="1:all:all"))
    for record in run.metrics():
        kept = [run.steps_of(record.round, client) for client in record.clients]
        assert [len(steps) for steps in kept] == record.local_work == record.local_steps
    assert not list(verify_run(run))


def test_verify_notices_one_that_is_gone_moved_or_of_another_step(tmp_path: Path) -> None:
    run = trained(tmp_path, BASE)
    path = run.step(3, 2, 4)
    content = path.read_bytes()
    path.unlink()
    assert [Path(fault.path).name for fault in verify_run(run)] == [path.name]
    path.write_bytes(run.step(3, 2, 2).read_bytes())
    assert any("step 2" in fault.problem for fault in verify_run(run))
    path.write_bytes(content)
    strange = run.step(3, 2, 3)
    strange.write_bytes(content)
    assert [Path(fault.path).name for fault in verify_run(run)] == [strange.name]


def test_they_are_deleted_alone_or_with_the_clients(tmp_path: Path) -> None:
    run = trained(tmp_path, BASE)
    assert delete_steps(run) == 8
    assert run.steps() == []
    assert not list(run.folder.glob("round-*/steps"))
    assert len(run.clients()) == 4
    assert not list(verify_run(run))
    other = trained(tmp_path, BASE, name="other")
    assert delete_clients(other) == 8 + 4
    assert not list(verify_run(other))
    cut = interrupted(tmp_path, BASE)
    with pytest.raises(UserError, match="unfinished"):
        delete_steps(cut)


def test_addresses(tmp_path: Path) -> None:
    run = open_run(prepare(BASE, {}), RunRegistry(tmp_path), "run", resume=False)
    path = run.step(1, 2, 4)
    assert path == run.folder / "round-0001/steps/0002/000004.pt"
    assert address_of(path) == "1:client2:step4"
    with pytest.raises(UserError, match=r"holds no @1:client2:step4"):
        RunRegistry(tmp_path).resolve("run@1:client2:step4")
