"""The gallery's files on the disk."""

import copy
import json
import math
import re
from pathlib import Path

import pytest
from matplotlib.text import Text
from scipy.stats import norm, t

from fedscope.errors import UserError
from fedscope.records.artefact import ArtefactRecord
from fedscope.reproduce.artefacts.record_of_cells import assemble
from fedscope.reproduce.gallery.cell_texts import table_csv
from fedscope.reproduce.gallery.drawing import _reach, figures, samples_note
from fedscope.reproduce.gallery.gallery import index, records, supplement, why_not_overwrite, write
from fedscope.reproduce.gallery.render import latex, markdown
from fedscope.reproduce.plan import BuildSettings, Plan
from fedscope.reproduce.recipes.run_cells import Choices
from fedscope.reproduce.recipes.spec import PAPERS, names, recipe

PROJECT = Path(__file__).parents[3]
GALLERY = PROJECT / "figures"


def committed(name: str) -> ArtefactRecord:
    return ArtefactRecord.read(json.loads((GALLERY / name).read_text(encoding="utf-8")))


def test_the_samples_are_of_the_seed_that_is_drawn() -> None:
    one = committed("man/figure4a-cpu.json")
    said = samples_note(one)
    assert "FedAvg 19.14 ± 0.97," in said
    first, *others = one.to_json()["drawn"]
    second = copy.deepcopy(first) | {"seed": first["seed"] + 1}
    second["record"]["lambda_max"]["value"] = 99.0
    several = samples_note(one.edited(drawn=[first, second, *others]))
    assert several == said.replace("training samples.", "training samples, the first of 2 seeds.")


def test_the_committed_artefacts_are_rendered_as_they_lie_there() -> None:
    found = list(records(GALLERY))
    assert len(found) > 10
    for path, record in found:
        assert json.dumps(record.to_json(), indent=1, ensure_ascii=False) + "\n" == path.read_text("utf-8")
        images = [image.name for image in sorted(path.parent.glob(f"{path.stem}*.png"))]
        if record.recipe in names():  # those of studies have more: tests/studies
            assert markdown(record, images) == path.with_suffix(".md").read_text("utf-8")
        assert table_csv(record) == path.with_suffix(".csv").read_text("utf-8")
        if record.entries or record.grid:
            assert latex(record) == path.with_suffix(".tex").read_text("utf-8")
    assert index(GALLERY) == (GALLERY / "README.md").read_text("utf-8")
    for paper in PAPERS:
        page = GALLERY / paper / "README.md"
        assert supplement(paper, GALLERY) == (page.read_text("utf-8") if page.exists() else "")


def test_a_papers_page_has_its_numbers_beside_ours_and_every_run_once() -> None:
    page = supplement("man", GALLERY)
    assert "FedAvg+MAN 52.00 ± 0.36; FedAvg 40.90 ± 0.62" in page
    shared = "precision fp32 → bf16"
    assert [line.startswith("- All that were run: ") for line in page.splitlines() if shared in line] == [
        True
    ]
    rows = [line for line in page.splitlines() if line.startswith("| man-t2-delta0.3-fedavg-s83217-")]
    assert len(rows) == 1
    assert " | FedAvg | 83217 | 500 | " in rows[0]


def test_what_explains_an_artefact_is_told_on_its_papers_page_and_stands_beside_it(tmp_path: Path) -> None:
    (tmp_path / "man").mkdir()
    for name in ("table3", "table2", "table2-guess"):
        record = committed("man/table2-cpu.json").edited(recipe=f"man/{name}")
        (tmp_path / "man" / f"{name}-cpu.json").write_text(json.dumps(record.to_json()))
    assert "## What may explain the rest" not in supplement("man", tmp_path)
    (tmp_path / "man" / "table2-guess-cpu.txt").write_text("of *two* guesses one is λ\\_max.\n", "utf-8")
    page = supplement("man", tmp_path)
    said = "[Table 2](table2-guess-cpu.md): of *two* guesses one is λ\\_max.\n\n## Where"
    assert f"## What may explain the rest\n\n- {said}" in page
    order = [record.recipe for _, record in records(tmp_path)]
    assert order == ["man/table2", "man/table2-guess", "man/table3"]


def test_what_one_run_does_not_depart_in_is_not_shared(tmp_path: Path) -> None:
    (tmp_path / "man").mkdir()
    for name, reductions in (("table1", ["bf16", "more"]), ("table2", ["bf16"]), ("figure2", [])):
        record = committed(f"man/{name}-cpu.json").edited(reductions=reductions, why=[])
        (tmp_path / "man" / f"{name}-cpu.json").write_text(json.dumps(record.to_json()))
        page = supplement("man", tmp_path)
        assert ("- All that were run: bf16\n" in page) is (name == "table2")


def test_a_gallery_without_a_papers_artefacts_has_no_page_of_it(tmp_path: Path) -> None:
    assert supplement("man", tmp_path) == ""


def test_the_committed_artefacts_follow_from_the_committed_runs() -> None:
    """All of their numbers and verdicts: nothing that one rests on has left the registry."""
    written = [name for name in names() if (GALLERY / f"{name}-cpu.json").is_file()]
    recipes = [recipe(name, "cpu") for name in written]
    plan = Plan(recipes, Choices(), BuildSettings(PROJECT / "checkpoints" / "papers", GALLERY), partial=True)
    for one in recipes:
        lost, elsewhere = plan.diverged[one.name], plan.elsewhere[one.name]
        found = assemble(one, plan.cells[one.name], plan.filled[one.name], "", lost, elsewhere)
        kept = committed(f"{one.name}-cpu.json")
        same = {"command": "", "versions": {}}  # how and with what it was made
        assert found.to_json() | same == kept.to_json() | same, one.name


@pytest.mark.parametrize("name", ["man/figure1-cpu", "fedalign/figure1-cpu", "man/table3-paper"])
def test_the_committed_drawings_have_their_pages(name: str) -> None:
    """A page of losses and one of the term; a page of all rows; none of a table."""
    pages = list(GALLERY.glob(f"{name}*.png"))
    assert len(figures(committed(f"{name}.json"))) == len(pages)


def test_correlations_are_drawn_where_there_are_some() -> None:
    record = committed("clients/sharpness-cpu.json")
    assert len(figures(record)) == 1
    assert figures(record.edited(correlations=[])) == []


def test_the_term_is_told_with_its_error() -> None:
    _, term = figures(committed("man/figure1-cpu.json"))
    captions = [text.get_text() for text in term.findobj(Text) if isinstance(text, Text)]
    assert any(re.match(r"centre MAN term 0\.174\d ± 0\.00", caption) for caption in captions), captions


def test_what_is_not_whole_is_marked_in_the_index(tmp_path: Path) -> None:
    for name, complete in (("whole", True), ("part", False)):
        record = committed("man/figure2-cpu.json").edited(title=name, complete=complete, drawn=[])
        (tmp_path / f"{name}.json").write_text(json.dumps(record.to_json()))
    lines = {
        line.split("|")[2].split(": ")[1].strip(): line
        for line in index(tmp_path).splitlines()
        if ".md" in line
    }
    assert "in part" in lines["part"]
    assert "| yes |" in lines["whole"]
    assert "in part" not in lines["whole"]


def test_a_table_is_written_in_latex_too_and_a_figure_is_not(tmp_path: Path) -> None:
    for name, suffixes in (
        ("man/table3-paper", {".json", ".md", ".csv", ".tex"}),
        ("man/figure2-cpu", {".json", ".md", ".csv", ".pdf", ".png"}),
    ):
        written = write(committed(f"{name}.json").edited(recipe=name.partition("/")[2]), tmp_path)
        assert {path.suffix for path in written} == suffixes


def test_pages_of_an_earlier_drawing_are_gone(tmp_path: Path) -> None:
    record = committed("man/figure2-cpu.json").edited(recipe="figure2")
    for name in ("figure2-cpu-1.png", "figure2-cpu-2.pdf", "figure2-smoke-1.png"):
        (tmp_path / name).write_bytes(b"")
    written = write(record, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["figure2-smoke-1.png", *(path.name for path in written)]
    )
    assert "figure2-cpu-1.png" not in index(tmp_path)


DEEP = "[" * 100_000


@pytest.mark.parametrize("content", ["{", DEEP, "[]", '{"schema": "other/1"}', '"\\ud800"', "\x00"])
def test_other_programs_files_do_not_stop_the_index(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "README.md").write_bytes(b"# \xff\xfe a page")
    assert "[b](b/README.md)" in index(tmp_path)


@pytest.mark.parametrize(
    "rest", ["", "}", f', "recipe": {DEEP}', ', "recipe": 1}', ', "recipe": "a", "claims": 0}']
)
def test_a_damaged_artefact_is_named(tmp_path: Path, rest: str) -> None:
    (tmp_path / "a-cpu.json").write_text('{"schema": "fedscope/artefact/1"' + rest)
    with pytest.raises(UserError, match="a-cpu"):
        index(tmp_path)
    empty = committed("man/figure2-cpu.json").edited(recipe="a", drawn=[], entries=[])
    assert why_not_overwrite(empty, tmp_path) is None


def test_errors_over_the_clients_rows_are_known_in_the_committed_table() -> None:
    assert not any("over the probes alone" in line for line in committed("fedalign/table1-cpu.json").notes)


def test_the_page_on_clients_has_the_numbers_of_the_gallery() -> None:
    page = (GALLERY.parent / "docs" / "explanation" / "where_clients_part.md").read_text("utf-8")
    _, _, said = page.partition("## Eight methods on CIFAR-100")
    found = {(e.row, e.quantity): e for e in committed("clients/table-cpu.json").entries}
    drift = {row: float(e.value or 0) for (row, name), e in found.items() if name == "drift"}
    assert (min(drift, key=lambda row: drift[row]), max(drift, key=lambda row: drift[row])) == (
        "FedAlign",
        "MOON",
    )
    for row in ("FedAlign", "MOON", "FedAvg"):
        assert f"{drift[row]:.1f}" in said
    for row in ("FedAlign", "StochDepth", "FedAvg"):
        gap = found[row, "gap_lambda_max"]
        assert f"{-float(gap.value or 0):.0f} ± {gap.error:.0f}" in said
    explained = {
        row: 100
        * float(found[row, "averaging_second"].value or 0)
        / float(found[row, "averaging"].value or 1)
        for row in drift
    }
    assert f"{explained.pop('FedAlign'):.0f} % of it" in said
    assert f"{explained.pop('MOON'):.0f} % for MOON" in said
    assert f"{min(explained.values()):.0f} to {max(explained.values()):.0f} % for six others" in said
    taus = {one.name: one for one in committed("clients/sharpness-cpu.json").correlations}
    assert f"τ = {taus['fisher_rao'].tau:.2f}" in said
    assert f"p = {taus['fisher_rao'].joint_p:.3f}" in said
    for name, tau in taus.items():
        assert (tau.joint_p < 0.05) is (name == "fisher_rao")
    assert f"τ = {taus['lambda_max'].tau:.2f}" in said
    assert f"the trace {taus['trace'].tau:.2f}" in said
    assert f"step {taus['sam'].tau:.2f}" in said


def test_bars_of_seeds_are_students_interval_of_their_mean_and_of_one_seed_of_its_measurement() -> None:
    (one, *_) = (e for e in committed("flatness/table-cpu.json").entries if e.value is not None)
    cell = one.edited(seeds=3, std=0.6, error=0.1)
    assert _reach(cell) == pytest.approx(float(t.ppf(0.975, 2)) * 0.6 / math.sqrt(3))
    assert _reach(cell.edited(seeds=1)) == pytest.approx(float(norm.ppf(0.975)) * 0.1)
    assert _reach(cell.edited(seeds=1, error=None)) is None
