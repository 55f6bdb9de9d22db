"""A run that is given more rounds goes on as if it had had them from the start, or says why not."""

import shutil
from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from tests.federated.runs import interrupted, resumed, trained
from tests.federated.server.test_run_rounds import stripped

SMALL = Settings(model="mlp_digits", clients=4, participation=0.5, rounds=2, epochs=1, lr_decay=0.9)


def longer(settings: Settings, rounds: int = 4) -> Settings:
    return settings.model_copy(update={"rounds": rounds})


def weights(run: RunFolder) -> str:
    return load_checkpoint(run.final).sha256


@pytest.mark.parametrize(
    "settings",
    [
        SMALL,
        SMALL.model_copy(update={"method": "feddyn", "eval_model": "all"}),
        SMALL.model_copy(update={"momentum": 0.9, "optimizer_state": "client"}),
        SMALL.model_copy(
            update={
                "optimizer": "adam",
                "optimizer_state": "client",
                "lr": 0.01,
                "local_steps": 3,
                "lr_schedule": "step",
                "lr_step": 2,
                "lr_warmup": 1,
                "stack": 2,
                "stragglers": 0.5,
            }
        ),
    ],
)
def test_the_same_bits_as_from_the_start(settings: Settings, tmp_path: Path) -> None:
    whole = trained(tmp_path, longer(settings), name="whole")
    run = trained(tmp_path, settings, name="cut")
    metrics = resumed(tmp_path, longer(settings))
    assert weights(run) == weights(whole)
    assert stripped(metrics) == stripped(whole.metrics())
    assert (run.manifest().extended, run.manifest().settings.rounds) == ((2,), 4)
    assert list(verify_run(run)) == []
    resumed(tmp_path, longer(settings, 5))
    assert run.manifest().extended == (2, 4)
    assert list(verify_run(run)) == []


def test_an_interrupted_one_too_and_a_kill_while_it_is_extended(tmp_path: Path) -> None:
    whole = trained(tmp_path, longer(SMALL), name="whole")
    run = interrupted(tmp_path, SMALL, after=1)
    resumed(tmp_path, longer(SMALL))
    assert weights(run) == weights(whole)
    between = trained(tmp_path, SMALL, name="between")
    between.final.rename(between.last)
    resumed(tmp_path, longer(SMALL), name="between")
    assert weights(between) == weights(whole)


def test_what_cannot_be_extended(tmp_path: Path) -> None:
    dynamic = SMALL.model_copy(update={"method": "feddyn"})
    run = trained(tmp_path, dynamic, name="cut")
    shutil.rmtree(run.folder / "state")
    with pytest.raises(UserError, match=r"feddyn .*round 2 "):
        resumed(tmp_path, longer(dynamic))
    assert (run.final.exists(), run.manifest().extended) == (True, ())
    assert len(resumed(tmp_path, dynamic)) == 2  # without more rounds it is left as it is
    with pytest.raises(UserError, match="rounds 2 → 1"):
        resumed(tmp_path, longer(dynamic, 1))
    shifting = SMALL.model_copy(update={"shift": "bernoulli"})
    trained(tmp_path, shifting, name="shifting")
    with pytest.raises(UserError, match="concept shifts"):
        resumed(tmp_path, longer(shifting), name="shifting")
    falling = SMALL.model_copy(update={"lr_schedule": "cosine"})
    trained(tmp_path, falling, name="falling")
    with pytest.raises(UserError, match="falls over all of its rounds"):
        resumed(tmp_path, longer(falling), name="falling")
    with pytest.raises(UserError, match="settings: lr"):
        changed = prepare(longer(dynamic).model_copy(update={"lr": 0.1}), {})
        train(changed, open_run(changed, RunRegistry(tmp_path), "cut", resume=True), print)
