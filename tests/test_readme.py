"""The README and the pages that it leads to first: their code runs, and what they say was found was found."""

import csv
import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import fmean, geometric_mean, stdev

import pytest

from fedscope.figures.digits import format_estimate

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[1]
README = PROJECT / "README.md"
OWN = PROJECT / "docs" / "how_to" / "own_checkpoint.md"
INSTALLATION = PROJECT / "docs" / "installation.md"
FINDINGS = PROJECT / "docs" / "findings.md"
LINES = 120  # of the README, the first screen of which says what it is and where to go


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def under(page: Path, heading: str) -> str:
    """Return what stands under a heading of a page."""
    return page.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) < LINES
    assert text.index("make demo") < text.index("import fedscope") < text.index("\n## ")
    (example,) = blocks(README, "python")
    assert len([line for line in example.splitlines() if line]) <= 5


def test_your_own_checkpoint(tmp_path: Path, programs: Path) -> None:
    module, example = blocks(OWN, "python")
    (tmp_path / "mine.py").write_text(module, encoding="utf-8")
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    (commands,) = (block for block in blocks(OWN, "sh") if "mine.pt" in block)
    (hessian,) = (line for line in commands.splitlines() if "hessian" in line)
    path = f"{programs}:{Path(sys.executable).parent}"
    shell = f"set -e\nPATH={path}:$PATH\n{commands}\n{hessian} --json mine.json\npython example.py"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "mine.json").read_text())
    values, trace = re.findall(r"\[([\d., ]+)\] ([\d.]+)$", done.stdout, re.MULTILINE)[0]
    assert [float(value) for value in values.split(",")] == pytest.approx(
        [entry["value"] for entry in record["eigenvalues"]], rel=1e-6
    )
    assert float(trace) == pytest.approx(record["trace"]["value"], rel=1e-6)
    assert {"density.png", "landscape.png"} <= {path.name for path in tmp_path.iterdir()}


def test_the_python_face_in_five_lines(tmp_path: Path, programs: Path) -> None:
    (example,) = blocks(README, "python")
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    done = subprocess.run([programs / "python", "example.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "fedsam-digits@5" in done.stdout
    assert (tmp_path / "landscape.pdf").is_file()


def test_every_dependency_has_a_reason() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    section = under(INSTALLATION, "Dependencies, and why")
    cells = re.findall(r"^\| (.+?) \| .+ \|$", section, re.MULTILINE)
    told = {name for cell in cells for name in cell.split(", ")}
    needed = {re.split("[<>=]", dependency)[0] for dependency in project["dependencies"]}
    assert needed <= told


def test_every_extra_is_told_with_its_packages() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    section = under(INSTALLATION, "Dependencies, and why")
    told = dict.fromkeys(extras.keys() - {"all", "test"}, "")
    for cells, extra in re.findall(r"^\| (.+?) \| .+ \| `(\w+)` \|$", section, re.MULTILINE):
        told[extra] += f"{cells}, "
    for extra, packages in told.items():
        own = [re.split(r"[\[<>=]", package)[0] for package in extras[extra]]
        assert set(packages.split(", ")) - {""} == set(own) - {"fedscope"}, extra


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text(encoding="utf-8"))
    assert links
    assert all((README.parent / link).exists() for link in links), links


def _gallery(name: str) -> list[dict[str, str]]:
    with (PROJECT / "figures" / f"{name}.csv").open(encoding="utf-8") as handle:
        return [entry for entry in csv.DictReader(handle) if entry["value"]]


def test_what_it_finds_is_what_was_found() -> None:
    entries = [entry for entry in _gallery("man/table2-cpu") if "round 150" in entry["column"]]
    measured = {
        (entry["row"], entry["quantity"]): format_estimate(
            float(entry["value"]), float(entry["std"] or entry["standard_error"])
        )
        for entry in entries
    }
    section = under(FINDINGS, "Four methods on CIFAR-100")
    rows = re.findall(r"^\| (Fed.*) \| (.+) % \| (.+) \| (.+) \|$", section, re.MULTILINE)
    assert {row for row, *_ in rows} == {row for row, _ in measured}
    for row, accuracy, largest, trace in rows:
        assert largest == measured[row, "lambda_max"]
        assert trace.replace(",", "") == measured[row, "trace"]
        found = set[float]()  # a longer run of the same seed has the same
        for run in (PROJECT / "checkpoints" / "papers").glob(f"man-t2-delta0.3-{row.lower()}-s*"):
            rounds = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
            found |= {100 * one["accuracies"]["cld"] for one in rounds if one["round"] == 150}
        assert len(found) == (3 if row in ("FedAvg", "FedAvg+MAN") else 1)
        mean = fmean(found)
        spread = stdev(found) if len(found) > 1 else math.sqrt(mean * (100 - mean) / 10_000)
        assert f"{mean:.2f} ± {spread:.2f}" == accuracy
    numbers = {
        row: [float(re.split("[ ±]", cell.replace(",", ""))[0]) for cell in cells] for row, *cells in rows
    }
    rises = [numbers[f"{base}+MAN"][0] - numbers[base][0] for base in numbers if f"{base}+MAN" in numbers]
    assert f"rises by {math.floor(min(rises))} to {math.ceil(max(rises))} points" in " ".join(section.split())
    varies = [
        f"{100 * float(entry['std']) / float(entry['value']):.0f}"
        for entry in entries if entry["std"] and entry["quantity"] == "lambda_max"
    ]  # fmt: skip
    said = f"between three trainings it varies by {varies[0]} % (FedAvg) and {varies[1]} % (FedAvg+MAN)"
    assert said in " ".join(section.split())
    (less,) = re.findall(
        r"FedDC's trace is smaller than FedDyn\+MAN's, at (\d) points less", " ".join(section.split())
    )
    dc, dyn = numbers["FedDC"], numbers["FedDyn+MAN"]
    assert (dc[2] < dyn[2], f"{dyn[0] - dc[0]:.0f}") == (True, less)


def test_another_number_of_samples_is_said_beside_the_number_and_the_picture() -> None:
    section = under(FINDINGS, "Four methods on CIFAR-100")
    (said,) = re.findall(r"with 1,024 of these images FedAvg's is ([\d.]+), as in Figures 4a and 4b", section)
    for name in ("figure4a-cpu", "figure4b-cpu"):
        record = json.loads((PROJECT / "figures" / "man" / f"{name}.json").read_text(encoding="utf-8"))
        drawn = {one["row"]: one["record"]["lambda_max"]["value"] for one in record["drawn"]}
        assert f"{drawn['FedAvg']:.1f}" == said
        page = (PROJECT / "figures" / "man" / f"{name}.md").read_text(encoding="utf-8")
        after_picture = page.split(".png)")[-1].strip()
        assert after_picture.startswith(
            "Measured on 1,024 training samples. λ\\_max on these: FedAvg 19.14 ±"
        )


def test_it_repeats_the_paper_s_accuracies() -> None:
    section = " ".join(under(FINDINGS, "Four methods on CIFAR-100").split())
    said = re.findall(r"(\S+) at ([\d.]+) % \((?:the paper: )?([\d.]+ ± [\d.]+)\)", section)
    whole = [
        entry
        for entry in _gallery("man/table1-cpu")
        if (entry["column"], entry["quantity"]) == ("CIFAR-100, δ = 0.3", "accuracy") and entry["value"]
    ]
    assert {entry["differs"] for entry in whole} == {"False"}
    assert said == [
        (
            entry["row"],
            f"{float(entry['value']):.2f}",
            f"{float(entry['paper']):.2f} ± {float(entry['paper_std']):.2f}",
        )
        for entry in whole
    ]


def test_and_says_where_it_does_not() -> None:
    section = " ".join(under(FINDINGS, "Four methods on CIFAR-100").split())
    (said,) = re.findall(
        r"(\S+) needs (\d+) rounds to 50 %, not the paper's (\d+), (\S+) (\d+), not (\d+)\.", section
    )
    reached = [
        (entry["row"], f"{float(entry['value']):.0f}", f"{float(entry['paper']):.0f}")
        for entry in _gallery("man/table1-cpu")
        if entry["quantity"] == "rounds_to_target" and entry["value"] and entry["row"].endswith("+MAN")
    ]
    assert [said[:3], said[3:]] == reached
    (above,) = re.findall(
        r"λ_max is ([\d.]+) to ([\d.]+) times ours, its trace ([\d.]+) to ([\d.]+) times", section
    )
    last = [entry for entry in _gallery("man/table2-cpu") if entry["column"] == "δ = 0.3" and entry["value"]]
    ratios = [
        [float(e["paper"]) / float(e["value"]) for e in last if e["quantity"] == quantity]
        for quantity in ("lambda_max", "trace")
    ]
    assert [f"{end(of):.1f}" for of in ratios for end in (min, max)] == list(above)


def test_what_the_paper_may_have_measured_is_what_the_readings_say() -> None:
    text = " ".join(FINDINGS.read_text("utf-8").split())
    (said,) = re.findall(
        r"the paper measured (\w+) images \((\d+) % of the share of (\d+) ways, "
        r"(\d+) % or more under other errors\), "
        r"some (\d+) of them \((\d+) %, (\d+) % or more\), where ours are ([\d.]+) and ([\d.]+)",
        text,
    )
    readings = json.loads((PROJECT / "figures/man/table2-readings-cpu.json").read_text("utf-8"))["readings"]
    best = max(readings["results"], key=lambda result: result["share"])
    split, samples = best["settings"]["split"], best["settings"]["samples"]
    assert best["name"] == f"{split}, server, {samples} samples"
    (on,) = (one["share"] for one in readings["axes"] if (one["axis"], one["value"]) == ("split", split))
    other = readings["sensitivities"]
    level = [
        geometric_mean(one["expected"] / one["printed"] for one in best["entries"] if one["quantity"] == q)
        for q in ("lambda_max", "trace")
    ]
    of_split = [
        split,
        *_percents(on),
        str(len(readings["results"])),
        *_percents(min(o["split"] for o in other)),
    ]
    of_best = [samples, *_percents(best["share"], min(o["usual"] for o in other))]
    assert list(said) == [*of_split, *of_best, *(f"{one:.2f}" for one in level)]


def _percents(*shares: float) -> list[str]:
    return [f"{100 * share:.0f}" for share in shares]


def test_the_smallest_lambda_max_goes_with_the_second_lowest_accuracy() -> None:
    said = "MOON has by far the smallest λ_max and the second lowest accuracy"
    assert said in " ".join(FINDINGS.read_text("utf-8").split())
    entries = _gallery("fedalign/table1-cpu")
    for quantity, place in (("best_accuracy", 1), ("lambda_max", 0), ("lambda_max_code", 0)):
        values = {entry["row"]: float(entry["value"]) for entry in entries if entry["quantity"] == quantity}
        assert len(values) == 7
        assert sorted(values, key=lambda row: values[row]).index("MOON") == place


def test_the_flattest_and_the_most_accurate_are_as_the_table_says() -> None:
    text = " ".join(FINDINGS.read_text("utf-8").split())
    (said,) = re.findall(
        r"Of the smallest λ_max, (\S+) reaches (\d+) %, the next, (\S+), (\d+) %; "
        r"the most accurate, (\S+), (\d+) %",
        text,
    )
    entries = _gallery("flatness/table-cpu")
    by = {
        quantity: {e["row"]: float(e["value"]) for e in entries if e["quantity"] == quantity}
        for quantity in ("lambda_max", "accuracy")
    }
    flat, accurate = (sorted(values, key=lambda row: values[row]) for values in by.values())
    shown = [text for row in (*flat[:2], accurate[-1]) for text in (row, f"{by['accuracy'][row]:.0f}")]
    assert list(said) == shown
