"""Building for real, on the bundled digits: from nothing, from everything, and after a kill."""

import json
import shutil
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.layout import ANALYSIS
from fedscope.checkpoints.registry.deletion import delete_checkpoints, delete_clients
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.cli.figures import build_command
from fedscope.errors import UserError
from fedscope.records.commands import DEFAULT
from fedscope.reproduce import plan as planning
from fedscope.reproduce.build import build, command
from fedscope.reproduce.gallery.gallery import INDEX, index, records
from fedscope.reproduce.plan import BuildSettings, Plan
from fedscope.reproduce.recipes.run_cells import Choices, cells
from fedscope.reproduce.recipes.spec import names, recipe
from fedscope.reproduce.runs import measure_kinds
from fedscope.reproduce.runs import measurements as measuring
from fedscope.reproduce.runs.inventory import train_job
from tests.processes import finished, started

pytestmark = pytest.mark.slow
SMOKE = [recipe(name, "smoke") for name in names()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> BuildSettings:
    """A registry and a gallery in which every recipe was built from nothing."""
    root = tmp_path_factory.mktemp("smoke")
    found = BuildSettings(root / "registry", root / "gallery")
    _, faults = build(SMOKE, Choices(), found, lambda _: None)
    assert not faults
    return found


def test_every_recipe_builds_from_an_empty_registry(place: BuildSettings) -> None:
    for one in SMOKE:
        record = json.loads((place.out / f"{one.stem}.json").read_text())
        assert record["complete"], one.name
        assert {(run["row"], run["column"]) for run in record["runs"]} >= {
            (row, column) for column in one.columns for row in one.columns[column].rows or one.rows
        }
        assert all(e["value"] is not None or e["text"] for e in record["entries"])
        page = (place.out / f"{one.stem}.md").read_text()
        assert f"Scale: {one.scale.name}" in page
        assert "not run" not in page
        if one.columns:
            assert "dataset " in page  # the stand-in is said
        if one.kind not in ("table", "cost", "traffic"):
            assert list(place.out.glob(f"{one.stem}*.png"))
            assert list(place.out.glob(f"{one.stem}*.pdf"))
        if record["entries"] or "grid" in record:
            assert r"\toprule" in (place.out / f"{one.stem}.tex").read_text()
        for run in record["runs"]:
            for name, checkpoint in run["checkpoints"].items():
                path = place.registry / run["run"] / checkpoint["file"]
                assert load_checkpoint(path).sha256 == checkpoint["sha256"]
                assert (place.registry / ANALYSIS / f"{checkpoint['result']}.json").is_file(), name


def test_no_record_says_where_it_was_made(place: BuildSettings) -> None:
    results = list((place.registry / ANALYSIS).glob("*.json"))
    records = list(place.out.rglob("*.json"))
    assert results
    assert records
    assert all(str(place.registry) not in path.read_text() for path in results + records)


def test_a_full_registry_is_computed_nothing_of(
    place: BuildSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path: path.read_bytes() for path in place.out.rglob("*") if path.is_file()}

    def refuse(*_: object) -> None:
        raise AssertionError("this was there")

    monkeypatch.setattr(planning, "train_job", refuse)
    monkeypatch.setattr(measuring, "compute", refuse)
    _, faults = build(SMOKE, Choices(), place, lambda _: None)
    assert not faults
    for path, content in before.items():
        if path.suffix not in (
            ".pdf",
            ".png",
        ):  # the same record draws the same figure; bytes are matplotlib's
            assert path.read_bytes() == content


def test_uploads_may_go_once_they_are_measured(place: BuildSettings, tmp_path: Path) -> None:
    """What is left of them must be what was measured."""
    registry = tmp_path / "registry"
    shutil.copytree(place.registry, registry)
    there = BuildSettings(registry, tmp_path / "gallery")
    table = [recipe("fedalign/table1", "smoke")]
    runs = json.loads((place.out / "fedalign" / "table1-smoke.json").read_text())["runs"]
    first, second = (RunRegistry(registry).run(run["run"]) for run in runs[:2])
    shutil.rmtree(first.folder / "clients")
    assert not Plan(tuple(table), Choices(), there).measures
    mine, other, *_ = second.clients()
    shutil.copy(mine, other)
    left = Plan(tuple(table), Choices(), there).measures.values()
    assert left
    assert all(path.parent.name == second.name and wanted.clients for path, wanted in left)


def test_a_measured_checkpoint_may_go(
    place: BuildSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers on the test samples still pair accuracies; without its result the run still stands."""
    registry, table = tmp_path / "registry", recipe("fedfor/table2", "smoke")
    shutil.copytree(place.registry, registry)
    there, store = BuildSettings(registry, tmp_path / "gallery"), RunRegistry(registry)
    before = json.loads((place.out / f"{table.stem}.json").read_text())
    paired = [run["checkpoints"]["outcomes of best"] for run in before["runs"]]
    assert {one["file"] for one in paired} == {"best.pt"}
    for run in before["runs"]:
        models = [path.name for path in store.run(run["run"]).folder.glob("*.pt")]
        assert {"best.pt", "final.pt", "initial.pt"} <= {*models}
        delete_checkpoints(store.run(run["run"]), models)
    monkeypatch.setattr(planning, "train_job", None)
    monkeypatch.setattr(measuring, "compute", None)
    build([table], Choices(), there, lambda _: None)
    after = json.loads((there.out / f"{table.stem}.json").read_text())
    assert {**after, "command": ""} == {**before, "command": ""}
    for result in {one["result"] for one in paired}:
        (registry / ANALYSIS / f"{result}.json").unlink()
    build([table], Choices(), there, lambda _: None)
    without = json.loads((there.out / f"{table.stem}.json").read_text())
    assert all("outcomes of best" not in run["checkpoints"] for run in without["runs"])
    assert [entry["value"] for entry in without["entries"]] == [entry["value"] for entry in before["entries"]]


def test_uploads_that_went_too_early_are_said(place: BuildSettings, tmp_path: Path) -> None:
    registry = tmp_path / "registry"
    shutil.copytree(place.registry, registry)
    shutil.rmtree(registry / ANALYSIS)
    one, there = recipe("fedalign/table1", "smoke"), BuildSettings(registry, tmp_path / "gallery")
    moon = Choices(rows=("moon",))
    (filled,) = Plan((one,), moon, there).filled[one.name]
    delete_clients(filled.match.entry.run)
    plan = Plan((one,), moon, there)
    assert [one.kind for _, one in plan.measures.values()] == ["hessian", "outcomes"]
    assert all("were deleted; delete the run" in why for why in plan.faults.values())
    assert plan.outline().faults == plan.faults
    _, faults = build([one], moon, there, lambda _: None)
    assert faults == plan.faults
    assert len(faults) == 2
    page = (there.out / "fedalign" / "table1-smoke.md").read_text()
    assert "not measured" in page
    assert "not run" not in page.split("## What")[0].split("| MOON")[1].splitlines()[0]


def test_a_fuller_artefact_is_not_replaced(place: BuildSettings, tmp_path: Path) -> None:
    one, there = recipe("man/table2", "smoke"), BuildSettings(tmp_path / "nothing", tmp_path / "gallery")
    shutil.copytree(place.out, there.out)
    before = {path: path.read_bytes() for path in there.out.rglob("*") if path.is_file()}
    written, faults = build([one], Choices(), there, lambda _: None, partial=True)
    assert (written, list(faults)) == ([], ["writing man/table2"])
    assert "it stays as it is; name its --registry" in faults["writing man/table2"]
    assert {path: path.read_bytes() for path in there.out.rglob("*") if path.is_file()} == before
    elsewhere, faults = build(
        [one], Choices(), BuildSettings(there.registry, tmp_path / "g"), lambda _: None, partial=True
    )
    assert (len(elsewhere), faults) == (4, {})


def test_the_command_names_the_registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    one = recipe("man/table2", "cpu")
    told = [
        command(one, Choices(), registry, partial=partial).partition("--scale cpu")[2]
        for registry, partial in (
            (Path("checkpoints"), False), (tmp_path / "a" / "b", True), (tmp_path.parent, False)
        )
    ]  # fmt: skip
    assert told == ["", " --registry a/b --partial", " --registry REGISTRY"]
    (option,) = (option for option in build_command.params if option.name == "registry")
    assert option.default == DEFAULT


def test_recipes_share_their_runs(place: BuildSettings) -> None:
    every = [one for recipe in SMOKE for one in cells(recipe)]
    runs = RunRegistry(place.registry).folders()
    assert len(runs) == len({one.identity for one in every}) < len(every)


def test_the_index_names_every_artefact(place: BuildSettings) -> None:
    (place.out / "mine").mkdir()
    (place.out / "mine" / INDEX).write_text("# A page of ours\n")
    text = index(place.out)
    for one in SMOKE:
        assert f"]({one.stem}.md)" in text
    assert "[mine](mine/README.md): A page of ours" in text
    assert "![man/figure2" in text
    (judged,) = (record for _, record in records(place.out) if record.recipe == "fedalign/table5")
    verdict, times = Counter(claim.verdict for claim in judged.claims).most_common(1)[0]
    assert f"{verdict}: {times}" in text


def test_a_killed_build_goes_on_with_the_same_bits(place: BuildSettings, tmp_path: Path) -> None:
    """Two workers until kill -9, then one: no finished run is touched, and all weights are as without it."""
    words = ["figures", "build", "man/figure2", "--scale", "smoke", "--registry", str(tmp_path / "r"),
             "--out", str(tmp_path / "g")]  # fmt: skip
    registry = RunRegistry(tmp_path / "r")
    with started(*words, "--workers", "2") as command:
        while not any(run.final.exists() for run in registry.folders()):
            assert command.code is None
            time.sleep(0.02)
    before = {run.name: run.final.stat().st_mtime_ns for run in registry.folders() if run.final.exists()}
    code, errors = finished(*words)
    if code == 2 and "another process" in errors:  # an orphan takes a moment to notice
        time.sleep(5)
        code, errors = finished(*words)
    assert code == 0, errors
    assert before
    for name, written in before.items():
        assert registry.run(name).final.stat().st_mtime_ns == written
    runs = json.loads((tmp_path / "g" / "man" / "figure2-smoke.json").read_text())["runs"]
    assert len(runs) == 6
    whole = json.loads((place.out / "man" / "figure2-smoke.json").read_text())["runs"]
    for ours, theirs in zip(runs, whole, strict=True):
        first, second = registry.run(ours["run"]), RunRegistry(place.registry).run(theirs["run"])
        assert load_checkpoint(first.final).sha256 == load_checkpoint(second.final).sha256


def test_a_fault_empties_a_cell_and_no_more(place: BuildSettings, tmp_path: Path) -> None:
    """Data that is not there fails its runs; the table is still written, with the reason."""
    one = recipe("fedfor/table4", "cpu")
    where = BuildSettings(tmp_path / "r", tmp_path / "g", data_dir=tmp_path)
    (tmp_path / "digits5").mkdir()
    _, faults = build([one], Choices(rows=("fedbn",)), where, lambda _: None)
    assert len(faults) == 2
    assert all("digits5" in why for why in faults.values())
    page = (tmp_path / "g" / "fedfor" / "table4-cpu.md").read_text()
    assert "not run [85.48 ± 0.05]" in page


def test_answers_that_cannot_be_told_leave_an_artefact_whole(
    place: BuildSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a run whose data are no longer at hand: its accuracies are not paired, and nothing else lacks."""

    def failing(*_: object) -> None:
        raise UserError("the data are gone")

    monkeypatch.setitem(measure_kinds.KINDS, "outcomes", failing)
    one, said = recipe("fedfor/table2", "smoke"), list[str]()
    registry = tmp_path / "registry"
    shutil.copytree(place.registry, registry)
    _, faults = build([one], Choices(), BuildSettings(registry, tmp_path / "kept"), said.append)
    assert (faults, said) == ({}, [])
    shutil.rmtree(registry / ANALYSIS)
    _, faults = build([one], Choices(), BuildSettings(registry, tmp_path / "gone"), said.append)
    assert faults == {}
    assert any("the data are gone" in text for text in said)
    paired, alone = (next(records(tmp_path / name))[1] for name in ("kept", "gone"))
    assert paired.complete
    assert alone.complete
    assert [made.checkpoints for made in alone.runs] == [{}] * len(alone.runs)
    assert all("outcomes of best" in made.checkpoints for made in paired.runs)
    assert [cell.value for cell in paired.entries] == [cell.value for cell in alone.entries]


def test_a_run_that_cannot_go_on_stands_in_its_cell_as_far_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, choices, there = (
        recipe("man/figure2", "smoke"),
        Choices(),
        BuildSettings(tmp_path / "r", tmp_path / "g"),
    )
    job, *_ = Plan((one,), choices, there).trainings
    train_job(replace(job, until=1), there.registry, None, "cpu", 1, lambda _: None)

    def failing(*_: object) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr(planning, "train_job", failing)
    _, faults = build([one], choices, there, lambda _: None)
    assert f"train {job.name}" in faults
    (record,) = (record for _, record in records(there.out))
    assert [made.run for made in record.runs] == [job.name]
    assert any(text.startswith(f"after 1 of {job.until} rounds") for text in record.reductions)
