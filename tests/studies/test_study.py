"""A study's files: those in the gallery, and those of a build from nothing on the bundled digits."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fedscope.errors import UserError
from fedscope.records.artefact import ArtefactRecord
from fedscope.reproduce.gallery.cell_texts import table_csv
from fedscope.reproduce.gallery.gallery import supplement
from fedscope.reproduce.gallery.render import latex, markdown
from fedscope.reproduce.plan import BuildSettings
from fedscope.reproduce.recipes.run_cells import Choices
from fedscope.reproduce.recipes.spec import SCALES, recipe
from studies.readings import readings_study
from studies.readings.readings_recipe import measured_cells, readings_recipe
from studies.readings.readings_record import ReadingsResult
from studies.settings import search_study
from studies.settings.search import search_recipe
from studies.settings.search_record import SearchRecord
from studies.study import Study, build
from studies.study_command import run
from tests.reproduce.recipes.test_spec import check_cells

PROJECT = Path(__file__).parents[2]
STUDIES: list[Study] = [readings_study.ReadingsStudy(), search_study.SearchStudy()]


def kept(name: str) -> tuple[ArtefactRecord, dict[str, str]]:
    """Return an artefact of the gallery, and its texts by suffix."""
    stem = PROJECT / "figures" / f"{name}-cpu"
    texts = {suffix: Path(f"{stem}.{suffix}").read_text("utf-8") for suffix in ("md", "csv", "tex", "txt")}
    return ArtefactRecord.read(json.loads(Path(f"{stem}.json").read_text("utf-8"))), texts


def check_texts(name: str, page: str, sentence: str) -> None:
    record, texts = kept(name)
    assert markdown(record, [f"{Path(name).name}-cpu.png"], page) == texts["md"]
    assert (table_csv(record), latex(record)) == (texts["csv"], texts["tex"])
    assert sentence + "\n" == texts["txt"]


def test_the_gallerys_readings_are_what_the_study_writes_of_its_record() -> None:
    record, _ = kept("man/table2-readings")
    readings = ReadingsResult.read(record.to_json()["readings"])
    page = readings_study.page(readings, record.scale)
    check_texts("man/table2-readings", page, readings_study.sentence(readings))


def test_the_gallerys_search_is_what_the_study_writes_of_its_record() -> None:
    record, _ = kept("fedfor/table2-settings")
    search = SearchRecord.read(record.to_json()["search"])
    page = search_study.page(search, record.scale)
    check_texts("fedfor/table2-settings", page, search_study.sentence(search))


@pytest.mark.parametrize("study", STUDIES, ids=lambda one: one.name)
@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_is_an_experiment(study: Study, scale: str) -> None:
    check_cells(study.recipe(scale), tries=study.name == "fedfor/table2-settings")


@pytest.mark.parametrize("study", STUDIES, ids=lambda one: one.name)
def test_columns_of_a_scale_are_presets_beside_published_ones(study: Study) -> None:
    whole = study.recipe("paper")
    for scale in ("cpu", "smoke"):
        for label, column in study.recipe(scale).columns.items():
            assert (column.published or label) in whole.columns


def test_a_plan_measures_every_reading_of_a_cell() -> None:
    own = readings_recipe("smoke")
    assert own.readings.base.samples == 40  # that of the scale
    plan = STUDIES[0].plan(own, Choices(), BuildSettings(Path("nothing"), Path("gallery")), partial=True)
    assert plan.cells[own.name] == measured_cells(own)
    assert plan.refreshed(partial=True).cells[own.name] == measured_cells(own)
    assert all(cell.measures for cell in plan.cells[own.name])


def test_without_a_run_there_is_no_reading_and_no_sentence(tmp_path: Path) -> None:
    place = BuildSettings(tmp_path / "registry", tmp_path / "gallery")
    study = STUDIES[0]
    stale = place.out / f"{study.name}-smoke.txt"
    stale.parent.mkdir(parents=True)
    stale.write_text("of 3 ways\n")
    written, faults = build(study, study.recipe("smoke"), Choices(), place, lambda _: None, partial=True)
    assert faults == {}
    page = Path(f"{place.out / study.name}-smoke.md").read_text()
    assert "No reading was measured under all methods." in page
    assert not stale.exists()
    assert stale not in written


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES, ids=lambda one: one.name)
def test_a_study_builds_from_an_empty_registry_and_then_from_a_full_one(study: Study, tmp_path: Path) -> None:
    place, own = BuildSettings(tmp_path / "registry", tmp_path / "gallery"), study.recipe("smoke")
    written, faults = build(study, own, Choices(), place, lambda _: None)
    assert not faults
    texts = {path: path.read_bytes() for path in written if path.suffix not in (".pdf", ".png")}
    assert {path.suffix for path in written} == {".json", ".md", ".csv", ".tex", ".txt", ".pdf", ".png"}
    (path,) = (path for path in written if path.suffix == ".json")
    record = json.loads(path.read_text())
    assert record["complete"]
    assert record["kind"] in record
    assert record[record["kind"]]["results"]
    said: list[str] = []
    again, faults = build(study, own, Choices(), place, said.append)
    assert (again, faults, said) == (written, {}, [])
    assert {path: path.read_bytes() for path in texts} == texts
    page = supplement(study.name.split("/")[0], place.out)
    assert "## What may explain the rest\n\n- [Table 2](" in page
    poorer = replace(place, registry=tmp_path / "nothing")
    assert build(study, own, Choices(), poorer, said.append, partial=True)[0] == []


def test_the_search_leaves_the_settings_of_the_paper_but_those_it_tries() -> None:
    assert set(search_recipe("cpu").columns) < set(search_recipe().columns)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["man/table3"], "this study builds man/table2-readings, not 'man/table3'"),
        (["--only", "moon"], "man/table2-readings has no method 'moon'"),
        (["--scale", "gpu"], "'gpu' is not one of"),
    ],
)
def test_mistakes_are_said_in_one_line(
    words: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["readings", *words, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        run(STUDIES[0])
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert told in said.err
    assert len(said.err.splitlines()) == 1


def test_the_package_names_the_studies_to_who_asks_for_their_artefacts() -> None:
    for study in STUDIES:
        with pytest.raises(UserError, match=r"studies/README\.md"):
            recipe(study.name)
