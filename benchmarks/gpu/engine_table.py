"""A network's record of ``engine.py`` as Markdown tables."""

from statistics import median
from typing import Any

from tables import row

Result = dict[str, Any]


def tables(groups: dict[str, Result]) -> str:
    """Return the groups of a network."""
    return "\n\n".join(_table(name, found) for name, found in groups.items())


def _table(name: str, found: Result) -> str:
    product = name == "product"
    reached = ["× fedscope", "peak GB", "differs by"] if product else ["products", "value", "reached"]
    heads = [name, "seconds", *reached]
    cells = _product if product else _run
    lines = [
        row([contestant, *cells(one)])
        if "failed" not in one
        else row([contestant, f"failed: {one['failed']}", *[""] * (len(heads) - 2)])
        for contestant, one in ({name: found} if "failed" in found else found).items()
    ]
    return "\n".join([row(heads), row(["---", *["---:"] * (len(heads) - 1)]), *lines])


def _product(one: Result) -> list[str]:
    ratio, peak, difference = one.get("times_fedscope"), one["peak_bytes"], one.get("difference")
    return [
        f"{median(one['seconds']):.4g}",
        "" if ratio is None else f"{ratio:.2f}",
        "" if peak is None else f"{peak / 1e9:.2f}",
        "" if difference is None else f"{difference:.0e}",
    ]


def _run(one: Result) -> list[str]:
    reached = f"residual {one['residual']:.1e}" if "residual" in one else f"± {one['stderr']:.2g}"
    reached += "" if one.get("converged", True) else ", stopped"
    return [f"{one['seconds']:.3g}", f"{one['products']:,}", f"{one['value']:.5g}", reached]
