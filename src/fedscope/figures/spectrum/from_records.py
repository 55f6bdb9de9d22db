"""Hessian records as drawings: densities, leading eigenvalues, clients' matrices, bars.

Built from the JSON of ``fedscope hessian --json`` (schema ``fedscope/hessian/1``), so that a figure can be
drawn again without computing anything.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.figure import Figure

from fedscope.errors import UserError
from fedscope.figures.spectrum.bars import bar_figure, checkpoint_bars, client_bars
from fedscope.figures.spectrum.client_pairs import client_matrix_figure
from fedscope.figures.spectrum.densities import density_figure
from fedscope.figures.spectrum.eigenvalues import eigenvalue_figure
from fedscope.figures.text.labels import label, measured_on, titles
from fedscope.figures.text.tables import check_hessian

Kind = Literal["density", "eigenvalues", "clients", "bars"]
KINDS: tuple[Kind, ...] = ("density", "eigenvalues", "clients", "bars")

Record = Mapping[str, Any]


def draw(records: Sequence[Record], kind: Kind = "density") -> Figure:
    """Draw one kind of figure of several records.

    ``density``: eigenvalue densities; ``eigenvalues``: the leading ones against their index; ``clients``: H_N
    and H_D of every pair of clients; ``bars``: λ_max and trace of each record, or, of one record with
    clients, of each client.

    Raises:
        UserError: no record, another schema, or a record without what this kind shows.
    """
    check_hessian(records)
    return _DRAWINGS[kind](records)


def _densities(records: Sequence[Record]) -> Figure:
    largest = [float(r["lambda_max"]["value"]) for r in records if r["lambda_max"]["value"] is not None]
    if len(largest) < len(records):
        raise UserError("the curvature is not finite, so there is no density to draw; see --json")
    densities = [_part(record, "density", "--density") for record in records]
    return density_figure(densities, titles(records), lambda_max=largest, caption=measured_on(records))


def _eigenvalues(records: Sequence[Record]) -> Figure:
    upper, lower = [], []
    for record in records:
        found = record["eigenvalues"]
        # the last half of both ends are the smallest, in descending order
        split = len(found) // 2 if record.get("both_ends") else len(found)
        upper.append(found[:split])
        lower.append(found[split:][::-1])
    caption = f"{measured_on(records)}; ± 95 % over the samples"
    return eigenvalue_figure(upper, titles(records), smallest=lower if any(lower) else None, caption=caption)


def _clients(records: Sequence[Record]) -> Figure:
    crossings = [_part(record, "cross_client", "--clients") for record in records]
    # the published scripts have the diagonals of tensors only
    known = all(crossing["H_N"]["parameter"] for crossing in crossings)
    return client_matrix_figure(crossings, titles(records), reading="parameter" if known else "tensor")


def _bars(records: Sequence[Record]) -> Figure:
    if len(records) == 1 and records[0].get("cross_client"):
        (title,) = titles(records)
        return bar_figure(client_bars(records[0]["cross_client"]), axis="client", title=title)
    places = [record["checkpoint"] for record in records]
    clients = [place.get("client") for place in places]
    if None not in clients and len({(place["run"], place["round"]) for place in places}) == 1:
        title = f"{places[0]['run']} (round {places[0]['round']})"
        bars = checkpoint_bars(records, [str(client) for client in clients])
        return bar_figure(bars, axis="client", title=title, caption=measured_on(records))
    return bar_figure(checkpoint_bars(records, titles(records)), caption=measured_on(records))


def _part(record: Record, name: str, flag: str) -> Any:
    if not record.get(name):
        raise UserError(
            f"the record of {label(record['checkpoint'])} has no {name.replace('_', '-')} part: "
            f"measure it with 'fedscope hessian {flag} --json FILE'"
        )
    return record[name]


_DRAWINGS = {"density": _densities, "eigenvalues": _eigenvalues, "clients": _clients, "bars": _bars}
