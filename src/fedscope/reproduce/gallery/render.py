"""An artefact's record as Markdown and LaTeX, and the gallery's index, each by its template."""

import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from fedscope.extras import needed
from fedscope.figures.text.sharpness_tables import SYMBOLS, correlation_table
from fedscope.records.artefact import ArtefactRecord, UsedRun
from fedscope.reproduce.artefacts.claims import Statement
from fedscope.reproduce.gallery.cell_texts import conditions, grid, legend, paper_text, verdict_notes
from fedscope.reproduce.gallery.drawing import samples_note

with needed("report", "a page of the gallery"):  # here, so that nothing is measured in vain
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

_LEVEL = 0.05  # of correlations together
_NARROW = 55  # characters of a row that fit into one of a page's two columns

_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "±": r"$\pm$", "×": r"$\times$", "−": r"$-$", "–": "--", "≈": r"$\approx$",
    "λ": r"$\lambda$", "α": r"$\alpha$", "δ": r"$\delta$", "ζ": r"$\zeta$", "μ": r"$\mu$", "φ": r"$\varphi$",
    "ρ": r"$\rho$", "β": r"$\beta$", "κ": r"$\kappa$", "τ": r"$\tau$", "ℓ": r"$\ell$", "∞": r"$\infty$",
    "‖": r"$\|$", "ᵀ": r"$^\top$", "√": r"$\surd$", "∇": r"$\nabla$", "γ": r"$\gamma$",
    "η": r"$\eta$", "Σ": r"$\Sigma$", "→": r"$\to$", "·": r"$\cdot$",
    "…": r"\dots{}", "≥": r"$\ge$", "≤": r"$\le$", "¾": r"\(\frac34\)", "½": r"\(\frac12\)",
}  # fmt: skip
_RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", "-01234567890123456789")
_SYMBOLS = {"λ_max": r"$\lambda_{\max}$", "H_N": r"$H_N$", "H_D": r"$H_D$", "w_{t−1}": r"$w_{t-1}$",
            "w_{t−2}": r"$w_{t-2}$", "w_k": r"$w_k$", "F_k": r"$F_k$", "N_b": r"$N_b$"}  # fmt: skip
_HOUR = 3600.0


def markdown(record: ArtefactRecord, images: Sequence[str] = (), further: str = "") -> str:
    groups, header, rows = grid(record)
    return filled(
        "artefact.md",
        record=record,
        images=images,
        measured=samples_note(record),
        headings=[f"{group}: {name}" if group else name for group, name in zip(groups, header, strict=True)],
        texts=_text_columns(record),
        rows=rows if record.entries or record.grid else [],
        legend=legend(record),
        claims=[(titled(record, claim.statement), claim) for claim in record.claims],
        judged=verdict_notes([record]),
        conditions=[*conditions(record), *record.notes],
        correlations=correlation_table(record.correlations, "gap") if record.correlations else None,
        correlated=[
            SYMBOLS.get(one.name, one.name) for one in record.correlations or () if one.joint_p <= _LEVEL
        ],
        further=further,
        runs=list(dict.fromkeys(f"{run.run} (round {run.round})" for run in record.runs)),
    )


def latex(record: ArtefactRecord) -> str:
    """Return the table in LaTeX, for a document with the packages booktabs and graphicx.

    A wide one spans both columns of a page; what is still wider than its place is scaled to it.
    """
    groups, header, rows = grid(record)
    wide = sum(max(map(len, column)) for column in zip(*rows, strict=True)) > _NARROW
    caption = [f"{record.printed_in} of {record.source}: {record.title}", *legend(record)]
    return filled(
        "artefact.tex",
        place="table*" if wide else "table",
        texts=_text_columns(record),
        numbers=len(header) - _text_columns(record),
        spans=_spans(groups) if any(groups) else [],
        header=header,
        rows=rows,
        caption=". ".join([*caption, *conditions(record), *record.notes]),
    )


def filled(template: str, **context: object) -> str:
    return environment().get_template(template).render(context).rstrip("\n") + "\n"


@cache
def environment() -> Environment:
    """Return the templates, with delimiters that neither Markdown nor LaTeX uses."""
    environment = Environment(
        block_start_string="<%", block_end_string="%>", variable_start_string="<<", variable_end_string=">>",
        comment_start_string="<#", comment_end_string="#>", trim_blocks=True, lstrip_blocks=True,
        undefined=StrictUndefined, loader=FileSystemLoader(Path(__file__).parent / "templates"),
    )  # fmt: skip
    environment.filters |= {"md": _md, "row": _row, "tex": tex, "heading": _heading}
    return environment


def _text_columns(record: ArtefactRecord) -> int:
    return record.grid.text_columns if record.grid else 1


def titled(record: ArtefactRecord, statement: str) -> str:
    before, _, quantity = statement.rpartition(" in ")
    return f"{before} in {record.quantities.get(quantity, quantity)}"


def _spans(groups: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return each group with its first and its last column, counted from 1; an empty one is one column."""
    spans: list[tuple[str, int, int]] = []
    for column, group in enumerate(groups, 1):
        if spans and spans[-1][0] == group and group:
            spans[-1] = (group, spans[-1][1], column)
        else:
            spans.append((group, column, column))
    return spans


def _heading(text: str) -> str:
    parts = text.split(", ")
    lines = r" \\ ".join(map(tex, parts))
    return rf"\shortstack[r]{{{lines}}}" if len(parts) > 1 else lines


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
    return re.sub(r"([\\|*_<>`])", r"\\\1", " ".join(text.split()))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_md, cells))} |"


def statements(record: ArtefactRecord, page: str) -> Iterator[dict[str, object]]:
    """Yield each statement with the numbers that the paper prints for it, and the page that judges it."""
    for claim in record.claims:
        parts = Statement.read(claim.statement)
        rows = (parts.row, *([parts.other] if parts.other else []))
        printed = [f"{row} {value}" for row in rows if (value := _printed(record, row, parts.quantity))]
        said = {"printed_in": record.printed_in, "page": page, "printed": "; ".join(printed)}
        yield {**said, "statement": titled(record, claim.statement), "claim": claim}


def used_runs(records: Sequence[ArtefactRecord]) -> list[tuple[str, ...]]:
    """Return every run once, at the latest of its rounds that an artefact uses."""
    found = dict[str, UsedRun]()
    for record in records:
        for run in record.runs:
            if run.run not in found or found[run.run].round < run.round:
                found[run.run] = run
    return [
        (
            *map(str, (run.run, run.row, run.seed, run.round)),
            _number(100 * run.accuracy, "{:.2f} %"),
            hours(run),
        )
        for run in found.values()
    ]


def _printed(record: ArtefactRecord, row: str, quantity: str) -> str:
    cells = (cell for cell in record.entries if (cell.row, cell.quantity) == (row, quantity))
    return next((text for cell in cells if (text := paper_text(cell.paper))), "")


def hours(run: UsedRun) -> str:
    if run.settings.device == "cpu":
        return _number(run.core_seconds / _HOUR, "{:.1f}")
    return _number(run.core_seconds / _HOUR, "{:.2f} of a GPU")


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else form.format(value)
