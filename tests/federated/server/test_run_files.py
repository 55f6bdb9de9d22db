from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.deletion import delete_clients
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.errors import UserError
from fedscope.federated.setup.federation import open_run, prepare
from tests.federated.runs import interrupted, resumed, trained

SETTINGS = Settings(
    clients=4, rounds=4, epochs=1, train_samples=200, test_samples=50, participation=0.5, seed=2,
    partition="iid", alpha=None, keep_every=2, eval_model="all",
)  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run whose clients' last uploads are of different rounds, and whose means are tracked."""
    return trained(tmp_path_factory.mktemp("registry"), SETTINGS)


def _same(one: Path, other: Path) -> bool:
    return load_checkpoint(one).sha256 == load_checkpoint(other).sha256


def _files(run: RunFolder) -> set[str]:
    return {path.relative_to(run.folder).as_posix() for path in run.folder.rglob("*.pt")}


def test_the_first_model_is_the_one_that_was_drawn(kept: RunFolder) -> None:
    first = load_checkpoint(kept.initial)
    assert (first.info.round, first.info.kind) == (0, "global")
    drawn: dict[str, Tensor] = prepare(SETTINGS, {}).model.state_dict()
    assert all(torch.equal(first.state[name], drawn[name]) for name in drawn)


def test_a_kept_upload_has_what_it_started_from(kept: RunFolder) -> None:
    rounds = {load_checkpoint(path).info.round for path in kept.clients()}
    assert len(rounds) > 1
    assert {int(path.parent.name[6:]) for path in kept.of_rounds() if path.stem == "anchor"} == rounds
    for round in rounds:
        assert load_checkpoint(kept.anchor(round)).info.round == round - 1
    if 3 in rounds:
        assert _same(kept.anchor(3), kept.after_round(2))


def test_every_upload_kept_every_anchor_kept(tmp_path: Path) -> None:
    run = trained(tmp_path, SETTINGS.model_copy(update={"save_clients": "all", "keep_every": 1, "rounds": 3}))
    assert _same(run.anchor(1), run.initial)
    assert _same(run.anchor(2), run.after_round(1))
    assert _same(run.anchor(3), run.after_round(2))
    assert not list(verify_run(run))
    assert delete_clients(run) == 4 + 3 * 2
    assert not any("anchor" in name or "clients" in name for name in _files(run))
    assert run.average("all", 2).exists()


def test_without_uploads_no_anchor_is_kept(tmp_path: Path) -> None:
    run = trained(tmp_path, SETTINGS.model_copy(update={"save_clients": "none", "eval_model": "cld"}))
    assert _files(run) == {"initial.pt", "best.pt", "final.pt", "round-0002.pt", "round-0004.pt"}


def test_kept_rounds_have_their_means(kept: RunFolder) -> None:
    for name in ("all", "sel"):
        info = load_checkpoint(kept.average(name, 2)).info
        assert (info.round, info.average) == (2, name)
    assert _same(kept.average("all", 4), kept.average("all"))
    assert _same(kept.average("sel", 4), kept.final)  # FedAvg's server takes the mean as it is
    assert not _same(kept.average("all", 2), kept.after_round(2))
    assert not list(verify_run(kept))


def test_an_interrupted_run_ends_with_the_same_files(kept: RunFolder, tmp_path: Path) -> None:
    cut = interrupted(tmp_path, SETTINGS)
    resumed(tmp_path, SETTINGS)
    assert _files(cut) == _files(kept)
    assert all(_same(cut.folder / name, kept.folder / name) for name in _files(kept))


def test_a_run_goes_on_with_the_rows_that_it_stored(
    kept: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = interrupted(tmp_path, SETTINGS)
    monkeypatch.setattr(
        "fedscope.federated.setup.run_samples.divided", lambda *_: pytest.fail("rows are drawn anew")
    )
    federation = prepare(SETTINGS, {}, run=cut)
    assert open_run(federation, RunRegistry(tmp_path), "cut", resume=True) == cut
    expected = kept.manifest().rows
    assert expected
    assert tuple(map(len, federation.rows)) == expected.counts
    assert federation.describe("cut").rows == expected


def test_fresh_clients_go_on_only_where_they_are_drawn_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = SETTINGS.model_copy(
        update={"partition": "longtail_stateless", "phi": 0.2, "rho": 0.2, "eval_model": "cld", "rounds": 3}
    )
    cut = interrupted(tmp_path, fresh)
    spec = cut.metrics()[1].rows
    assert spec
    assert load_checkpoint(cut.last).info.rows == spec.sha256
    assert {int(path.parent.name[6:]) for path in cut.folder.glob("round-*/rows.zz")} == {
        load_checkpoint(path).info.round for path in cut.clients()
    }
    prepare(fresh, {}, run=cut)
    monkeypatch.setattr("fedscope.streams.key", lambda *_: 7)
    with pytest.raises(UserError, match="in training"):
        prepare(fresh, {}, run=cut)


@pytest.mark.parametrize(("source", "why"), [("clients/0001.pt", "client"), ("best.pt", "'all'")])
def test_a_run_goes_on_from_no_model_but_its_newest(tmp_path: Path, source: str, why: str) -> None:
    cut = interrupted(tmp_path, SETTINGS)
    cut.last.write_bytes((cut.folder / source).read_bytes())
    with pytest.raises(UserError, match=why):
        resumed(tmp_path, SETTINGS)


def test_a_run_goes_on_from_no_other_runs_model(kept: RunFolder, tmp_path: Path) -> None:
    other = SETTINGS.model_copy(update={"seed": 3})
    cut = interrupted(tmp_path, other)
    cut.last.write_bytes(kept.after_round(2).read_bytes())
    with pytest.raises(UserError, match="another run"):
        resumed(tmp_path, other)


def test_a_run_of_a_time_when_no_rows_were_stored_goes_on(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"save_clients": "none", "eval_model": "cld"})
    cut = interrupted(tmp_path, settings)
    cut.write_manifest(cut.manifest().model_copy(update={"rows": None}))
    cut.rows().unlink()
    cut.initial.unlink()
    for path in cut.folder.glob("*.pt"):
        found = load_checkpoint(path)
        save_checkpoint(path, found.state, found.info.model_copy(update={"rows": ""}))
    assert not list(verify_run(cut))
    resumed(tmp_path, settings)
    assert not list(verify_run(cut))
