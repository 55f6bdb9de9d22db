import shutil
from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.errors import UserError
from tests.federated.runs import interrupted, resumed, trained

SETTINGS = Settings(model="mlp_digits", clients=4, participation=0.5, rounds=4, epochs=1, seed=1)


def without(run: RunFolder, *names: str) -> dict[str, bytes]:
    """Delete files of a run; return the others with their content."""
    for name in names:
        (run.folder / name).unlink()
    return {name: (run.folder / name).read_bytes() for name in ("metrics.jsonl", "best.pt")}


def test_a_run_that_lost_its_newest_model_is_left_as_it_is(tmp_path: Path) -> None:
    run = interrupted(tmp_path, SETTINGS)
    before = without(run, "last.pt")
    with pytest.raises(UserError, match="has 2 rounds, and the model after the newest one is not here"):
        resumed(tmp_path, SETTINGS)
    assert without(run) == before


def test_a_part_of_a_run_is_not_trained_over(tmp_path: Path) -> None:
    run = interrupted(tmp_path, SETTINGS, after=1)
    run.write_manifest(run.manifest().model_copy(update={"partial": True}))
    before = without(run, "last.pt")
    with pytest.raises(UserError, match="pull the whole run"):
        resumed(tmp_path, SETTINGS)
    assert without(run) == before


def test_a_kill_before_the_first_model_begins_anew(tmp_path: Path) -> None:
    whole = trained(tmp_path, SETTINGS, name="whole")
    run = interrupted(tmp_path, SETTINGS, after=1)
    without(run, "last.pt")
    assert len(resumed(tmp_path, SETTINGS)) == 4
    assert load_checkpoint(run.final).sha256 == load_checkpoint(whole.final).sha256


@pytest.mark.parametrize(
    ("change", "kind"), [({"method": "feddyn"}, "state"), ({"eval_model": "all"}, "latest")]
)
def test_what_clients_of_earlier_rounds_remember_must_be_there(
    tmp_path: Path, change: dict[str, str], kind: str
) -> None:
    settings = SETTINGS.model_copy(update=change)
    run = interrupted(tmp_path, settings)
    first, second = (set(one.clients) for one in run.metrics())
    gone = min(first - second)
    shutil.rmtree(run.folder / kind / "round-0001")
    with pytest.raises(UserError, match=rf"remembers of client {gone} is not in .*{kind}"):
        resumed(tmp_path, settings)
