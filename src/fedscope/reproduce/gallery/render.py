"""An artefact's record as Markdown, CSV and LaTeX: the same cells, each with the paper's value beside it."""

import csv
import io
import re
from collections.abc import Iterator, Sequence

from fedscope.figures.numbers import format_estimate
from fedscope.records.artefact import ArtefactRecord, Cell, PaperValue
from fedscope.records.hessian import HessianRecord
from fedscope.reproduce.artefacts.artefact import NOT_MEASURED
from fedscope.reproduce.gallery.drawing import samples_told, surfaces

NOT_RUN = "not run"
_NARROW = 55  # characters of a row that fit into one of a page's two columns
CSV_COLUMNS = (
    "row", "column", "quantity", "value", "std", "standard_error", "seeds", "rounds", "text",
    "paper", "paper_std", "paper_inferred", "paper_note", "differs",
)  # fmt: skip

_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "±": r"$\pm$", "×": r"$\times$", "−": r"$-$", "–": "--", "≈": r"$\approx$",
    "λ": r"$\lambda$", "α": r"$\alpha$", "δ": r"$\delta$", "ζ": r"$\zeta$", "μ": r"$\mu$", "φ": r"$\varphi$",
    "ρ": r"$\rho$", "γ": r"$\gamma$", "η": r"$\eta$", "Σ": r"$\Sigma$", "→": r"$\to$", "·": r"$\cdot$",
    "…": r"\dots{}", "≥": r"$\ge$", "≤": r"$\le$", "¾": r"\(\frac34\)", "½": r"\(\frac12\)",
}  # fmt: skip
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "-01234567890123456789")
_SYMBOLS = {"λ_max": r"$\lambda_{\max}$", "H_N": r"$H_N$", "H_D": r"$H_D$", "w_{t−1}": r"$w_{t-1}$",
            "w_{t−2}": r"$w_{t-2}$", "w_k": r"$w_k$", "F_k": r"$F_k$", "N_b": r"$N_b$"}  # fmt: skip


def cell_text(entry: Cell) -> str:
    """Return a cell: our value ± deviation or error, the paper's in brackets, a star if they differ."""
    if entry.value is not None:
        shown = entry.spread
        ours = format_estimate(entry.value, *([shown] if shown is not None else []))
        if not shown and (shown == 0 or entry.value.is_integer()):
            ours = f"{entry.value:.4g}"
    else:
        ours = entry.text or NOT_RUN
    star = "*" if entry.differs else ""
    paper = paper_text(entry.paper)
    return f"{ours}{star} [{paper}]" if paper else f"{ours}{star}"


def paper_text(paper: PaperValue | None) -> str:
    """Return what the paper prints: value ± deviation, ≈ before what is inferred, "lost" where it is."""
    if paper is None:
        return ""
    if not paper.value:
        return "lost"
    text = f"{paper.value} ± {paper.std}" if paper.std else paper.value
    return f"≈ {text}" if paper.inferred else text


def grid(record: ArtefactRecord) -> tuple[list[str], list[str], list[list[str]]]:
    """Return the table as texts: each column's group, its heading, and the rows; the first is the row's name.

    A group that is empty stands for the heading alone.
    """
    if own := record.grid:
        return [""] * len(own.header), list(own.header), [list(row) for row in own.rows]
    cells = {(e.row, e.column, e.quantity): e for e in record.entries}
    places = list(dict.fromkeys((e.column, e.quantity) for e in record.entries))
    groups = ["", *(column for column, _ in places)]
    header = ["method", *(record.quantities[quantity] for _, quantity in places)]
    if len(set(header[1:])) == 1 and len(places) > 1:  # one quantity: the columns' names say all
        header = ["method", *(column for column, _ in places)]
        groups = [""] * len(header)
    rows = []
    for row in record.rows:
        found = [cells.get((row, column, quantity)) for column, quantity in places]
        rows.append([row, *("" if entry is None else cell_text(entry) for entry in found)])
    return groups, header, rows


def legend(record: ArtefactRecord) -> list[str]:
    """Return what the marks in the table mean, as far as there are any."""
    entries, found = record.entries, []
    papers = [entry.paper for entry in entries if entry.paper]
    if any(entry.seeds > 1 for entry in entries):
        found.append("± standard deviation over seeds")
    if any(entry.seeds == 1 and entry.error for entry in entries):
        found.append(
            "± standard error of the measurement, of one seed: the spread between trainings is in no error"
        )
    if papers:
        found.append("[ ]: the paper's value")
    if any(paper.inferred for paper in papers):
        found.append("≈: not printed there; " + _reasons(papers, inferred=True))
    if any(not paper.value for paper in papers):
        found.append("lost: the paper's value is lost in the text it survives in")
    if any(entry.differs for entry in entries):
        found.append(
            "*: differs from the paper's by more than twice the combined error, or in a printed digit"
        )
    if any(_incomparable(entry) for entry in entries) and record.scale != "smoke":
        found.append("a value without ± has no known error, and is not compared with the paper's")
    if any(entry.text == NOT_MEASURED for entry in entries):
        found.append(f"{NOT_MEASURED}: the run is there; this of it is not")
    if any(entry.value is None and entry.text is None for entry in entries):
        found.append(f"{NOT_RUN}: no run of these settings is in the registry")
    for note in dict.fromkeys(paper.note for paper in papers if paper.note and not paper.inferred):
        if not note.startswith("lost"):
            who = [e.row for e in entries if e.paper and e.paper.note == note]
            found.append(f"the paper's value of {', '.join(dict.fromkeys(who))}: {note}")
    return found


def _incomparable(entry: Cell) -> bool:
    known = entry.value is not None and entry.error is None and entry.differs is None
    return known and bool(entry.paper and entry.paper.value)


def _reasons(papers: Sequence[PaperValue], *, inferred: bool) -> str:
    return "; ".join(dict.fromkeys(p.note for p in papers if bool(p.inferred) == inferred and p.note))


def conditions(record: ArtefactRecord) -> list[str]:
    """Return the scale and every reduction, in the lines that stand under an artefact."""
    lines = [f"Scale: {record.scale}"]
    lines += [f"Why: {why}" for why in record.why]
    if record.reductions:
        lines.append("Departs from the published experiment in: " + "; ".join(record.reductions))
    if record.provisional:
        lines.append("Provisional, since no source gives it: " + "; ".join(record.provisional))
    return lines


def markdown(record: ArtefactRecord, images: Sequence[str] = ()) -> str:
    """Return the artefact as a page of Markdown; ``images`` are file names beside it."""
    lines = [f"# {record.printed_in}: {record.title}", "", f"{record.source}.", ""]
    lines += [line for image in images for line in (f"![{_md(record.title)}]({image})", "")]
    lines += [_md(told), ""] if (told := samples_told(record)) else []
    _, header, rows = grid(record)
    if rows and (record.entries or record.grid):
        groups = grid(record)[0]
        named = [
            _md(f"{group}: {name}" if group else name) for group, name in zip(groups, header, strict=True)
        ]
        text = record.grid.text_columns if record.grid else 1
        rule = ["---"] * text + ["---:"] * (len(named) - text)
        lines += [_row(named), _row(rule), *(_row([_md(cell) for cell in row]) for row in rows), ""]
        lines += [f"{_md(line)}  " for line in legend(record)] + [""]
    if record.claims:
        lines += ["## What the paper says", "", _row(["statement", "here", "evidence"]), _row(["---"] * 3)]
        lines += [
            _row([_md(_says(record, c.statement)), f"**{c.verdict}**", _md("; ".join(c.evidence))])
            for c in record.claims
        ] + [""]
    lines += ["## What this is", "", *(f"- {_md(line)}" for line in conditions(record))]
    lines += [f"- {_md(note)}" for note in record.notes]
    runs = list(dict.fromkeys(f"{run.run} (round {run.round})" for run in record.runs))
    if runs:
        lines.append("- Runs: " + ", ".join(_md(run) for run in runs))
    lines += ["", "```sh", record.command, "```", ""]
    return "\n".join(lines)


def _says(record: ArtefactRecord, statement: str) -> str:
    """Return a statement with its quantity's title."""
    before, _, quantity = statement.rpartition(" in ")
    return f"{before} in {record.quantities.get(quantity, quantity)}"


def table_csv(record: ArtefactRecord) -> str:
    """Return the cells, one a line, with full digits; of an artefact without cells its table."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if record.grid:
        _, header, rows = grid(record)
        writer.writerow(header)
        writer.writerows(rows)
        return out.getvalue()
    if not record.entries:
        writer.writerows(_points(record))
        return out.getvalue()
    writer.writerow(CSV_COLUMNS)
    for e in record.entries:
        paper = e.paper
        theirs = (paper.value, paper.std, paper.inferred, paper.note) if paper else (None,) * 4
        text = e.text or (NOT_RUN if e.value is None else None)
        writer.writerow([
            e.row, e.column, e.quantity, e.value, e.std, e.error, e.seeds, e.round,
            text, *theirs, e.differs,
        ])  # fmt: skip
    return out.getvalue()


def _points(record: ArtefactRecord) -> Iterator[Sequence[object]]:
    """Yield the heading and the points of what a figure draws."""
    yield "row", "seed", *_AXES[record.kind]
    for one in record.drawn:
        at, found = (one.row, one.seed), one.record
        if record.kind == "curves":
            yield from ((*at, round, value) for round, value in enumerate(one.accuracy, 1))
        elif isinstance(found, HessianRecord) and record.kind == "spectrum":
            yield from ((*at, rank, entry.value) for rank, entry in enumerate(found.eigenvalues, 1))
        elif isinstance(found, HessianRecord) and found.density:
            pairs = zip(found.density.grid, found.density.density, strict=True)
            yield from ((*at, *pair) for pair in pairs)
        else:
            for part in surfaces(found):
                first, second = (axis.values for axis in part.axes)
                for x, row in zip(first, part.loss, strict=True):
                    yield from ((*at, part.part, x, y, z) for y, z in zip(second, row, strict=True))


_AXES = {
    "curves": ("round", "accuracy"),
    "spectrum": ("rank", "eigenvalue"),
    "density": ("eigenvalue", "density"),
    "landscape": ("part", "first", "second", "loss"),
}


def latex(record: ArtefactRecord) -> str:
    """Return the table in LaTeX, for a document with the packages booktabs and graphicx.

    A wide one spans both columns of a page; what is still wider than its place is scaled to it.
    """
    groups, header, rows = grid(record)
    text = record.grid.text_columns if record.grid else 1
    spec = "l" * text + "r" * (len(header) - text)
    wide = sum(max(map(len, column)) for column in zip(*rows, strict=True)) > _NARROW
    place = "table*" if wide else "table"
    lines = [
        rf"\begin{{{place}}}",
        r"\centering\small\setlength{\tabcolsep}{4pt}",
        r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{spec}}}",
        r"\toprule",
    ]
    if any(groups):
        tops, rules, at = [], [], 1
        for group, width in _spans(groups):
            tops.append(
                rf"\multicolumn{{{width}}}{{c}}{{{tex(group)}}}" if group else " & ".join([""] * width)
            )
            if group:
                rules.append(rf"\cmidrule(lr){{{at}-{at + width - 1}}}")
            at += width
        lines += [" & ".join(tops) + r" \\", "".join(rules)]
    lines += [" & ".join(map(_heading, header)) + r" \\", r"\midrule"]
    lines += [" & ".join(map(tex, row)) + r" \\" for row in rows]
    caption = [f"{record.printed_in} of {record.source}: {record.title}", *legend(record)]
    caption += [*conditions(record), *record.notes]
    lines += [
        r"\bottomrule",
        r"\end{tabular}}",
        rf"\caption{{{tex('. '.join(caption))}.}}",
        rf"\end{{{place}}}",
        "",
    ]
    return "\n".join(lines)


def _heading(text: str) -> str:
    """Return a heading, of two lines where it has two parts."""
    parts = text.split(", ")
    lines = r" \\ ".join(map(tex, parts))
    return rf"\shortstack[r]{{{lines}}}" if len(parts) > 1 else lines


def _spans(groups: Sequence[str]) -> list[tuple[str, int]]:
    spans: list[tuple[str, int]] = []
    for group in groups:
        if spans and spans[-1][0] == group and group:
            spans[-1] = (group, spans[-1][1] + 1)
        else:
            spans.append((group, 1))
    return spans


def tex(text: str) -> str:
    """Return plain ``text`` for LaTeX's text mode, with every character escaped that it reads otherwise."""
    parts = re.split("(" + "|".join(map(re.escape, _SYMBOLS)) + "|[⁻⁰¹²³⁴-⁹]+|[₀-₉]+)", text)
    return "".join(map(_tex_part, parts))


def _tex_part(part: str) -> str:
    if part in _SYMBOLS:
        return _SYMBOLS[part]
    if re.fullmatch("[⁻⁰¹²³⁴-⁹]+", part):
        return f"$^{{{part.translate(_RAISED)}}}$"
    if re.fullmatch("[₀-₉]+", part):
        return f"$_{{{part.translate(_RAISED)}}}$"
    return "".join(_TEX.get(character, character) for character in part)


def _md(text: str) -> str:
    """Return ``text`` so that Markdown reads nothing into it."""
    return re.sub(r"([\\|*_<>`])", r"\\\1", " ".join(text.split()))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
