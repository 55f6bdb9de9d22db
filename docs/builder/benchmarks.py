"""The tables of the benchmarks' page, from the records that the benchmarks wrote."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from builder.markdown import table

MEASURES = {
    "commands": "whole commands beside an older commit and PyHessian",
    "certificates": "products until λ_max has its residual, and until it is certified",
    "where": "where the seconds of a command go",
    "curvature": "products, eigenvalues and trace beside PyHessian, hessian-eigenthings, curvlinops",
    "landscapes": "a point of a surface beside a plain loop and loss-landscapes; adaptive grids",
    "training": "samples per second beside a bare loop, pfl and Flower",
    "products": "products that sharing between quantities and rounds saves",
    "interval_coverage": "how often 95 % intervals hold the truth on networks trained on CIFAR-10",
    "methods": "accuracy, time and cost of every method",
    "authors": "rounds of every method beside the authors' own programs",
}
SCRIPTS = {"authors": "authors/compare.py"}


def part(root: Path, name: str) -> str:
    """Return the table of that name."""
    makers = {
        "files": _files,
        "commands": _commands,
        "certificates": _certificates,
        "where": _where,
        "products": _products,
        "algorithms": _algorithms,
        "points": _points,
        "training": _training,
        "authors": _authors,
        "programs": _programs,
    }
    return makers[name](root / "benchmarks")


def _read(folder: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return content


def _machines(content: Any) -> Iterator[dict[str, Any]]:
    """Yield every machine that a record names."""
    if isinstance(content, dict):
        if isinstance(content.get("machine"), dict):
            yield content["machine"]
        for inner in content.values():
            yield from _machines(inner)
    if isinstance(content, list):
        for inner in content:
            yield from _machines(inner)


def _files(folder: Path) -> str:
    rows = []
    for name, measures in MEASURES.items():
        machines = list(_machines(_read(folder, name)))
        cpus = " or ".join(sorted({machine["cpu"] for machine in machines}))
        torch = ", ".join(sorted({str(machine["torch"]) for machine in machines}))
        day = max((machine["date"][:10] for machine in machines), default="")
        rows.append([f"`{SCRIPTS.get(name, f'{name}.py')}`", measures, cpus, torch, day])
    return table(["benchmark", "what it measures", "processor", "torch", "last run"], rows)


def _commands(folder: Path) -> str:
    rows = []
    for row in _read(folder, "commands")["rows"].values():
        now, earlier = row["now"], row.get("before")
        own, peers = now["command"], [name for name in now if name not in ("command", "record")]
        others = [
            *([(f"at `{earlier['commit'][:8]}`", earlier["command"])] if earlier else []),
            *(("PyHessian", now[name]) for name in peers if name != "beside"),
        ]
        beside = [
            f"{name}: {_spread(one)}, {_ratio(own, one)}, {one['peak'] / 1e9:.2f} GB" for name, one in others
        ]
        if "beside" in now:
            elapsed = (own["elapsed"], now["beside"]["elapsed"])
            beside = ["{:.3g} s by the clock, one process {:.3g} s".format(*elapsed), *beside]
        products = str(now["record"]["products"]) if "record" in now else "–"
        peak = f"{own['peak'] / 1e9:.2f}"
        rows.append(
            [row["says"], f"`{row['command']}`", _spread(own), peak, products, "; ".join(beside) or "–"]
        )
    heads = ["what", "command", "processor seconds", "peak memory, GB", "products", "beside"]
    return table(heads, rows)


def _certificates(folder: Path) -> str:
    rows = [
        [str(one["steps"]), str(one["residual_below_tol"]), str(one["certified"]), f"{_more(one):.2f}"]
        for one in _read(folder, "certificates")["rows"]
    ]
    return table(["steps of training", "products for the residual", "for the certificate", "ratio"], rows)


def _where(folder: Path) -> str:
    found = _read(folder, "where")["rows"].values()
    spent: dict[str, list[float]] = {}
    for i, row in enumerate(found):
        for what, seconds in row["seconds"].items():
            spent.setdefault(what, [0.0] * len(found))[i] = seconds
    rows = [
        [what, *(f"{one:.2f}" for one in seconds)]
        for what, seconds in sorted(spent.items(), key=lambda item: -max(item[1]))
    ]
    totals = [sum(row["seconds"].values()) for row in found]
    rows.append(["together", *(f"{total:.1f}" for total in totals)])
    return table(["processor seconds", *(f"`{row['command']}`" for row in found)], rows)


def _more(one: dict[str, int]) -> float:
    return one["certified"] / one["residual_below_tol"]


def _spread(one: dict[str, Any]) -> str:
    seconds = one.get("own", one["seconds"])
    most, least = max(one["all"]), min(one["all"])
    return f"{seconds:.3g} s" + (f" ({least:.3g} to {most:.3g})" if len(one["all"]) > 1 else "")


def _ratio(own: dict[str, Any], other: dict[str, Any]) -> str:
    return f"{own['seconds'] / other.get('own', other['seconds']):.2f} of it"


def _products(folder: Path) -> str:
    found = _read(folder, "curvature")["resnet20"]["product"]["contestants"]
    rows = [
        [
            name,
            f"{median(seconds):.2f}",
            f"{found['times_fedscope'][name]:.2f}",
            f"{found['peak_bytes'][name] / 1e9:.2f}",
        ]
        for name, seconds in found["seconds"].items()
    ]
    return table(["contestant", "seconds", "× fedscope", "peak memory, GB"], rows)


def _algorithms(folder: Path) -> str:
    found = _read(folder, "curvature")["resnet20"]
    titles = {"top1": "λ_max, residual 1e-3", "top20": "top 20, residual 1e-3", "trace": "trace to 1 %"}
    rows = [
        [title, name, str(one["products"])]
        for key, title in titles.items()
        for name, one in found[key]["contestants"].items()
    ]
    return table(["asked for", "contestant", "products"], rows)


def _points(folder: Path) -> str:
    content = _read(folder, "landscapes")
    rows = [
        [f"`{network}`", name, f"{median(seconds):.2f}", f"{one['speed']['times_fedscope'][name]:.2f}"]
        for network, one in content.items()
        if isinstance(one, dict)
        for name, seconds in one["speed"]["seconds_per_point"].items()
    ]
    return table(["network", "contestant", "seconds per point", "× fedscope"], rows)


def _training(folder: Path) -> str:
    rows = [
        [group["title"], name, f"{one['samples_per_second']:,.0f}"]
        for group in _read(folder, "training")["groups"]
        for name, one in group["contestants"].items()
    ]
    return table(["work", "contestant", "samples per second"], rows)


def _authors(folder: Path) -> str:
    content = _read(folder, "authors")
    rows = []
    for row in content["rows"]:
        entry = row["entry"].replace(",", ", ")
        rows.append(
            [
                f"`{row['method']}`" + (f", {row['variant']}" if row["variant"] else ""),
                f"{row['program']}: {entry}",
                row["reading"],
                _rounds(row["apart"]),
                _rounds(row["patched"] or []),
                row["why"],
            ]
        )
    rows += [[f"`{method}`", "none found", "", "", "", why] for method, why in content["absent"].items()]
    heads = ["method", "program: what of it", "reading", "apart, by rounds", "patched", "what differs"]
    return table(heads, rows)


def _rounds(apart: list[float]) -> str:
    return ", ".join(f"{one:.0e}" for one in apart)


def _programs(folder: Path) -> str:
    rows = [
        [
            name,
            f"[{one['repository'].rpartition('/')[2]}]({one['repository']})",
            f"`{one['commit'][:8]}`",
            one["licence"],
        ]
        for name, one in _read(folder, "authors")["programs"].items()
    ]
    return table(["program", "repository", "commit", "licence"], rows)
