import csv
import io
import re
from typing import Any

import pytest

from fedscope.records.artefact import ArtefactCell, ArtefactRecord
from fedscope.reproduce.gallery.cell_texts import cell_text, grid, table_csv
from fedscope.reproduce.gallery.render import latex, markdown, tex


def entry(row: str, quantity: str, value: float | None, **more: Any) -> dict[str, Any]:
    return {
        "row": row, "column": "δ = 0.3", "quantity": quantity, "value": value, "std": None, "error": None,
        "seeds": 1, "each": [value], "text": None, "round": 5, "paper": None, "differs": None, **more,
    }  # fmt: skip


def paper(value: str, std: str = "", *, inferred: bool = False, note: str = "") -> dict[str, Any]:
    return {"value": value, "std": std, "inferred": inferred, "note": note}


RECORD: dict[str, Any] = {
    "schema": "fedscope/artefact/1", "recipe": "man/table2", "title": "Top & trace_100%",
    "printed_in": "Table 2", "source": "Nobody 2024", "kind": "table", "scale": "cpu", "why": ["less of it"],
    "reductions": ["rounds 500 → 5"], "provisional": ["man.zeta 0.15 (so it is)"], "notes": ["a note"],
    "command": "fedscope figures build man/table2",
    "complete": True, "rows": ["FedAvg", "A|B_{x}", "Gone"], "columns": ["δ = 0.3"],
    "quantities": {"accuracy": "accuracy (%)", "lambda_max": "λ_max"},
    "entries": [
        entry("FedAvg", "accuracy", 52.1, std=0.62, error=0.36, seeds=3, paper=paper("52.00", "0.36")),
        entry("FedAvg", "lambda_max", 43.2, error=1.2, paper=paper("51.49"), differs=True),
        entry("A|B_{x}", "accuracy", None, text="500+", paper=paper("46.5", inferred=True, note="from x")),
        entry("A|B_{x}", "lambda_max", 1.5e-9, error=2e-10, paper=paper("", note="lost in the text")),
        entry("Gone", "accuracy", None, seeds=0, paper=paper("40.90")),
    ],
    "claims": [{"statement": "FedAvg < A in lambda_max", "verdict": "holds", "evidence": ["A − B = −3 ± 1"]}],
    "drawn": [],
    "runs": [
        {
            "row": "FedAvg", "column": "δ = 0.3", "run": "r_1", "round": 5, "checkpoints": {}, "seed": 1,
            "accuracy": None, "core_seconds": None, "settings": {},
        }
    ],
}  # fmt: skip


def artefact(**changes: Any) -> ArtefactRecord:
    return ArtefactRecord.read(RECORD | changes)


MARKDOWN = r"""# Table 2: Top & trace_100%

Nobody 2024.

| method | δ = 0.3: accuracy (%) | δ = 0.3: λ\_max |
| --- | ---: | ---: |
| FedAvg | 52.10 ± 0.62 [52.00 ± 0.36] | 43.2 ± 1.2\* [51.49] |
| A\|B\_{x} | 500+ [≈ 46.5] | (1.50 ± 0.20)×10⁻⁹ [lost] |
| Gone | not run [40.90] |  |

± standard deviation over seeds (δ = 0.3: FedAvg)  
± standard error of the measurement, of one seed: the variation between trainings is not in it  
[ ]: the paper's value  
≈: not printed there; from x  
lost: the paper's value is lost in the text it survives in  
\*: differs from the paper's by more than twice our standard error and its deviation combined, and by more than half a unit of its last digit  
no \* where settings, other than the precision, depart from the paper's: they are not compared  
not run: no run of these settings is in the registry  

## The statements, judged

| statement | here | evidence |
| --- | --- | --- |
| FedAvg \< A in λ\_max | **holds** | A − B = −3 ± 1 |

The verdicts of each artefact are right together with 95 % (Holm's procedure), if its errors are.
Differences of λ\_max are without the upward bias of few samples, which each value has, where both were measured on the same samples.

## What this is

- Scale: cpu
- Why: less of it
- Departs from the published experiment in: rounds 500 → 5
- Provisional, since no source gives it: man.zeta 0.15 (so it is)
- a note
- Runs: r\_1 (round 5)

```sh
fedscope figures build man/table2
```
"""  # noqa: E501, W291


def test_correlations_stand_below_the_table() -> None:
    tau = {"name": "sam", "tau": -0.5, "interval": [-0.9, 0.1], "p": 0.1, "joint_p": 0.2, "count": 7}
    page = markdown(artefact(kind="correlation", correlations=[tau]))
    _, _, after = page.partition("## Kendall's τ with the generalisation gap\n")
    assert "| SAM step | −0.50 | −0.90 to 0.10 | 0.1 | 0.2 | 7 |" in after
    assert "Of 1 sharpnesses none goes with the gap" in after
    both = [tau | {"joint_p": 0.05}, tau | {"name": "trace", "joint_p": 0.01}]
    page = markdown(artefact(kind="correlation", correlations=both))
    assert "Of 2 sharpnesses SAM step and trace go with the gap" in page
    assert "Kendall" not in markdown(artefact())


def test_what_a_verdict_rests_on_is_said() -> None:
    alone = {"statement": "A < B in trace", "verdict": "holds", "evidence": ["A − B = −3 ± 1 (one seed)"]}
    said = "such a verdict is on the runs here, not on the methods"
    assert said in markdown(artefact(claims=[alone]))
    assert "bias of few samples" not in markdown(artefact(claims=[alone]))
    borrowed = "A − B = −3 ± 1 (one seed; spread between trainings of man/table2)"
    assert said not in markdown(artefact(claims=[alone | {"evidence": [borrowed]}]))
    assert "Holm" not in markdown(artefact(claims=[]))


def test_markdown_says_everything() -> None:
    assert markdown(artefact()) == MARKDOWN


def test_latex_compiles_in_principle() -> None:
    text = latex(artefact())
    assert r"FedAvg & 52.10 $\pm$ 0.62 [52.00 $\pm$ 0.36] & 43.2 $\pm$ 1.2* [51.49] \\" in text
    assert r"A|B\_\{x\} & 500+ [$\approx$ 46.5] & (1.50 $\pm$ 0.20)$\times$10$^{-9}$ [lost] \\" in text
    assert r"\multicolumn{2}{c}{$\delta$ = 0.3}" in text
    assert r"Top \& trace\_100\%" in text
    assert text.isascii()
    assert r"a note.}" in text
    plain = re.sub(r"\\[\\{}%&_#$]", "", text).replace("{!}{%\n", "{!}{\n")  # a comment ends no line there
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert "%" not in plain
    assert "#" not in plain
    outside = re.sub(r"\$[^$]*\$", "", plain)
    assert "_" not in outside
    assert "^" not in outside
    columns = len(re.search(r"tabular\}\{([lr]+)\}", text)[1])  # type: ignore[index]
    rows = text.split(r"\midrule")[1].split(r"\bottomrule")[0].strip().splitlines()
    assert len(rows) == 3
    assert all(len(re.findall(r"(?<!\\)&", row)) == columns - 1 for row in rows)
    assert text.count(r"\begin{") == text.count(r"\end{")


def test_a_wide_table_spans_the_page_with_headings_of_two_lines() -> None:
    assert latex(artefact()).startswith(r"\begin{table*}")
    header = {"header": ["a", "H_N, block traces"], "rows": [["b", "1"]]}
    narrow = latex(artefact(grid=header))
    assert narrow.startswith("\\begin{table}\n")
    assert narrow.endswith("\\end{table}\n")
    assert r"a & \shortstack[r]{$H_N$ \\ block traces} \\" in narrow


def test_what_cannot_be_compared_is_said() -> None:
    line = "a value without ± has no known error, and is not compared with the paper's"
    alone = [entry("FedAvg", "accuracy", 190.8, paper=paper("297"))]
    assert line in markdown(artefact(entries=alone))
    assert line not in markdown(artefact(entries=[entry("FedAvg", "accuracy", 190.8)]))
    assert line not in markdown(artefact())
    unmeasured = [entry("FedAvg", "accuracy", None, text="not measured")]
    assert "not measured: the run is in the registry" in markdown(artefact(entries=unmeasured))


@pytest.mark.parametrize("character", list("\\&%$#_{}~^<>"))
def test_no_character_is_read_as_a_command(character: str) -> None:
    assert tex(character) != character
    assert tex(f"a{character}b").startswith("a")


def test_csv_has_full_digits_and_gaps() -> None:
    rows = list(csv.DictReader(io.StringIO(table_csv(artefact()))))
    assert [row["value"] for row in rows] == ["52.1", "43.2", "", "1.5e-09", ""]
    assert [row["text"] for row in rows] == ["", "", "500+", "", "not run"]
    assert [row["paper"] for row in rows] == ["52.00", "51.49", "46.5", "", "40.90"]
    assert rows[2]["paper_inferred"] == "True"


def test_one_quantity_needs_no_second_heading() -> None:
    entries = [{**entry("FedAvg", "accuracy", 1.0), "column": column} for column in ("E = 10", "E = 20")]
    groups, header, rows = grid(artefact(rows=["FedAvg"], entries=entries))
    assert header == ["method", "E = 10", "E = 20"]
    assert not any(groups)
    assert rows == [["FedAvg", "1", "1"]]


def test_a_table_without_cells_is_its_texts() -> None:
    record = artefact(entries=[], grid={"header": ["layer", "products"], "rows": [["conv_1", "3 × 3"]]})
    assert "| conv\\_1 | 3 × 3 |" in markdown(record)
    assert r"conv\_1 & 3 $\times$ 3 \\" in latex(record)
    assert table_csv(record) == "layer,products\nconv_1,3 × 3\n"


def test_a_curve_is_a_list_of_points() -> None:
    drawn = [{"row": "FedAvg", "column": "δ = 0.3", "seed": 3, "accuracy": [0.25, 0.5]}]
    record = artefact(kind="curves", entries=[], drawn=drawn)
    assert table_csv(record) == "row,seed,round,accuracy\nFedAvg,3,1,0.25\nFedAvg,3,2,0.5\n"


def test_an_exact_value_stands_alone() -> None:
    exact = ArtefactCell.read(entry("A", "macs", 87.254, error=0.0, paper=paper("87.3"), differs=False))
    assert cell_text(exact) == "87.25 [87.3]"
