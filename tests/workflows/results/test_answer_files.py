"""What the answers to `fedscope hessian` rest on."""

from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.data.reading import shards
from fedscope.data.sets.dataset_catalogue import record
from fedscope.workflows.results.answer_files import rests_on
from fedscope.workflows.results.stored_answers import stamps


def test_a_checkpoint_counts_by_its_bytes_and_its_clients_by_their_run(run: RunFolder) -> None:
    assert rests_on([run.final], None, clients=False) == stamps([run.final])
    assert rests_on([run.final], None, clients=True) == stamps([run.final, run.folder])
    assert rests_on([run.client(0)], None, clients=True) == stamps([run.client(0), run.folder])


def test_nothing_is_fetched_to_know_what_an_answer_rests_on(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(_: shards.HubSource) -> None:
        raise AssertionError("it was fetched")

    monkeypatch.setattr(shards, "fetch", fetch)
    for name in record("digits5").names:
        (tmp_path / "digits5" / "synthdigits" / name).mkdir(parents=True)
        (tmp_path / "digits5" / "synthdigits" / name / "0.png").touch()
    known = load_checkpoint(run.final)
    data = known.info.data.model_copy(update={"name": "digits5"})
    save_checkpoint(tmp_path / "final.pt", known.state, known.info.model_copy(update={"data": data}))
    assert rests_on([tmp_path / "final.pt"], tmp_path, clients=False) is None
