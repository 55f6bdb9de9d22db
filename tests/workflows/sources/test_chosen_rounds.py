"""The models inside a client's training that `--local-steps` names, and the way that they are in a plane."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.errors import UserError
from fedscope.workflows.landscape.slices import _is_run, slices
from fedscope.workflows.progress import SILENT
from fedscope.workflows.sources.chosen_rounds import along_given, along_steps
from fedscope.workflows.sources.targets import Targets
from tests.federated.runs import trained

SETTINGS = Settings(
    clients=3, participation=1.0, rounds=2, local_steps=6, batch_size=16, train_samples=120, test_samples=30,
    partition="iid", model="mlp_digits", save_clients="all", keep_steps="2:0,1:2",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained(tmp_path_factory.mktemp("registry"), SETTINGS)


def targets(run: RunFolder, *checkpoints: str) -> Targets:
    return Targets(checkpoints=checkpoints, registry=run.root, samples=32)


def test_steps_are_named_client_by_client(run: RunFolder) -> None:
    found = along_steps(targets(run, "run@2:client1", "run@2:client0"), "all").checkpoints
    assert found == tuple(f"run@2:client{k}:step{s}" for k in (1, 0) for s in (2, 4, 6))
    assert along_steps(targets(run, "run@2:client0"), "2:6:4").checkpoints == (
        "run@2:client0:step2", "run@2:client0:step6",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("checkpoint", "text", "words"),
    [
        ("run@2:client0", "1:5:2", "no model of local step 1, it has 2, 4, 6; .*--keep-steps 1:0:2`"),
        (
            "run@1:client0",
            "all",
            "no model inside .* run@1:client0 was kept; .*`fedscope train --keep-steps 1:0:1`",
        ),
        ("run@2:client0", "5", "--local-steps takes FIRST:LAST:STEP"),
        ("run@2:client0", "2:3:2", "2 to 500 local steps"),
        ("run@2", "all", "give RUN@ROUND:clientK, not run@2"),
        ("run@client0", "all", "give RUN@ROUND:clientK"),
        ("run", "all", "give RUN@ROUND:clientK"),
    ],
)
def test_what_was_not_kept_is_refused(checkpoint: str, text: str, words: str, run: RunFolder) -> None:
    with pytest.raises(UserError, match=words):
        along_steps(targets(run, checkpoint), text)


def test_without_a_client_there_are_no_steps(run: RunFolder) -> None:
    with pytest.raises(UserError, match="give RUN@ROUND:clientK"):
        along_steps(replace(targets(run), checkpoints=()), "all")


def test_rounds_and_local_steps_are_not_given_together(run: RunFolder) -> None:
    given = targets(run, "run@2:client0")
    with pytest.raises(UserError, match="give one of them"):
        along_given(given, "1:2", "all")
    assert along_given(given, None, "all") == along_steps(given, "all")
    assert along_given(given, None, None) == given


def test_a_client_s_way_is_from_what_it_received_to_its_upload(run: RunFolder) -> None:
    ((problem, way),) = slices("pca", targets(run, "run@2:client0"), SILENT)
    assert problem.path == run.client(0, 2)
    assert way
    networks = way.networks
    assert tuple(networks.labels) == ("start", "step 2", "step 4", "step 6", "client 0")
    ends = [networks.points[0], networks.points[4]]
    assert float((ends[1] - networks.points[3]).norm()) == 0  # plain steps: the last one is the upload
    assert float((ends[1] - ends[0]).norm()) > 0


def test_a_way_without_steps_says_how_to_keep_them(run: RunFolder) -> None:
    with pytest.raises(UserError, match="--keep-steps 1:0:1"):
        slices("pca", targets(run, "run@1:client0"), SILENT)


@pytest.fixture(scope="module")
def without_uploads(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    settings = SETTINGS.model_copy(update={"save_clients": "none", "keep_steps": "2:0:2", "rounds": 3})
    return trained(tmp_path_factory.mktemp("registry"), settings)


def test_steps_need_no_upload(without_uploads: RunFolder) -> None:
    found = along_steps(targets(without_uploads, "run@2:client0"), "all").checkpoints
    assert found == tuple(f"run@2:client0:step{s}" for s in (2, 4, 6))
    ((problem, way),) = slices("pca", targets(without_uploads, "run@2:client0"), SILENT)
    assert problem.path == without_uploads.step(2, 0, 6)
    assert way
    assert tuple(way.networks.labels) == ("step 2", "step 4", "step 6")


def test_a_way_starts_at_the_model_of_the_round_before_where_no_anchor_was_kept(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"save_clients": "none", "keep_every": 1})
    ((_, way),) = slices("pca", targets(trained(tmp_path, settings), "run@2:client0"), SILENT)
    assert way
    assert tuple(way.networks.labels) == ("start", "step 2", "step 4", "step 6")
    assert way.paths[0].name == "round-0001.pt"


def test_too_few_models_for_a_plane_are_refused(tmp_path: Path) -> None:
    settings = SETTINGS.model_copy(update={"save_clients": "none", "keep_steps": "5:0:2"})
    with pytest.raises(UserError, match=r"has 1 models from its start .*--save-clients all"):
        slices("pca", targets(trained(tmp_path, settings), "run@2:client0"), SILENT)


def test_a_folder_of_a_runs_name_does_not_hide_the_run(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.root)
    assert _is_run(RunRegistry(Path()), run.name)
    assert not _is_run(RunRegistry(Path()), f"{run.name}@2")
    monkeypatch.chdir(run.folder)
    assert not _is_run(RunRegistry(run.root), "clients")  # a folder, and no run's
