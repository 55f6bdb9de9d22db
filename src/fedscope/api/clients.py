"""Where the clients of a round part from each other and from the global model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.api.printed_results import Recorded, axes_of, on_screen
from fedscope.api.reporting import reporter
from fedscope.api.sources import On, Weights, names_of, targets_of
from fedscope.checkpoints.file.checkpoint import versions
from fedscope.choices import Anchor, BatchNormMode
from fedscope.errors import UserError, check_keywords
from fedscope.figures import own_axes
from fedscope.figures.animation import save_film
from fedscope.figures.clients.round_figures import draw, frame_figures, rounds_figure
from fedscope.figures.figure_kinds import ClientsKind
from fedscope.figures.style import paper_style
from fedscope.figures.text.client_tables import clients_tables, rounds_tables
from fedscope.figures.text.hessian_table import Table
from fedscope.records.client_quantities import RoundsKind
from fedscope.records.clients_record import ClientsRecord, Quantity
from fedscope.records.run_curves import RunCurves
from fedscope.workflows.clients.clients_request import FAST, ClientsRequest, chosen
from fedscope.workflows.clients.measure_clients import clients as measured
from fedscope.workflows.run_records import runs_of
from fedscope.workflows.sources.chosen_rounds import along
from fedscope.workflows.sources.run_clients import UPLOADS


class Clients(Recorded[ClientsRecord]):
    """What was measured; :attr:`records` has it as ``fedscope clients --json`` prints it."""

    def __init__(self, records: Sequence[ClientsRecord], runs: Sequence[RunCurves] = ()) -> None:
        super().__init__(records)
        self._runs = runs  # whose accuracy stands beside curves

    def __getitem__(self, place: int) -> "Clients":
        return Clients([self.records[place]])

    def table(self) -> Table:
        """Return the first of the tables that ``fedscope clients`` prints."""
        return self.tables()[0]

    def tables(self) -> list[Table]:
        """Return the tables that ``fedscope clients`` prints: of each round, or with ``rounds`` by round."""
        if self._runs:
            return list(rounds_tables(self.records))
        return [table for record in self.records for table in clients_tables(record)]

    def figure(self, kind: ClientsKind | RoundsKind = "gap") -> Figure:
        """Return a picture: ``gap``, ``alignment``, ``drift``, and of one round ``matrix``.

        Of several rounds it shows means over the clients by round, below test accuracy; and ``diagonals``.

        Raises:
            UserError: what is shown was not measured, or is not of so many rounds.
        """
        if len(self) > 1:
            if kind == "matrix":
                raise UserError("matrices are of one round: take one of several by its place, or film()")
            return on_screen(rounds_figure(self.records, self._runs, kind))
        if kind == "diagonals":
            raise UserError("H_N and H_D are drawn by round: give rounds, or of one round draw the matrix")
        return on_screen(draw(self.records, kind))

    def film(self, path: str | Path, kind: ClientsKind = "gap", *, seconds: float = 0.5) -> None:
        """Write a film (.gif) of the picture of each round, on the axes of all.

        Raises:
            UserError: another ending, what is shown was not measured, or the rounds are of several runs.
        """
        if Path(path).suffix.lower() != ".gif":
            raise UserError(f"{path} is no film: name it .gif")
        save_film(frame_figures(self.records, kind), Path(path), record=self.origin(), seconds=seconds)

    def plot(self, ax: Axes | None = None, *, quantity: Quantity | None = None) -> Axes:
        """Draw one quantity and return the axes: of a round's clients, or the gaps of its means by round.

        ``quantity``: ``loss``, ``lambda_max`` or ``trace``, by default the first that was measured.

        Raises:
            UserError: it was not measured.
        """
        axes = axes_of(ax)
        with paper_style():
            own_axes.clients(axes, self.records, quantity)
        return axes


def clients(
    *what: Weights,
    only: Sequence[str] = (),
    top_k: int = 5,
    tol: float = 1e-2,
    probes: int = 16,
    anchor: Anchor = "start",
    start: bool = False,
    rounds: str | None = None,
    bn: BatchNormMode = "eval",
    recompute: bool = False,
    **on: Unpack[On],
) -> Clients:
    """Measure where the clients of a round part from each other and from the global model.

    The round's uploads must have been kept: ``train(save_clients="last")``, or ``"all"``. Results are kept in
    the registry and found again.

    Args:
        *what: the rounds' global models: RUN, RUN@25, a run or a checkpoint; none: the newest run's.
        only: parts to measure, such as ``loss`` and ``drift``, or ``all``; none: loss, λ_max, trace, drift,
            and alignment where the model that the round began with was kept.
        top_k: eigenvectors of the spaces of alignment and overlap.
        tol: residual of each eigenpair, relative to λ_max.
        probes: of each trace.
        anchor: what updates are from: the model that the round began with, or its result (``global``).
        start: also λ_max and trace at the model that the round began with.
        rounds: FIRST:LAST:STEP or ``all``: these rounds of the runs, of those whose uploads were kept
            (``train(save_clients="all", keep_every=1)``).
        bn: BatchNorm's statistics: ``eval`` as stored, ``recalibrate``, or the ``batch``'s own.
        recompute: measure again what the registry has.
        **on: samples of each client's training rows and of all (by default 512) and place, see :class:`On`;
            without ``data``, ``model``, ``loss`` and ``split``.

    Raises:
        UserError: a round's uploads were not kept, or an option is wrong; the message says how to mend it.
    """
    check_keywords(clients, on, On)
    own = [key for key in ("data", "model", "loss", "split") if key in on]
    named = None if own else names_of(what, on)
    if named is None:
        raise UserError(
            "clients are those of a run's round, on the training rows that they hold: name it as RUN or "
            f"RUN@25, {f'and leave out {own[0]}' if own else 'not by a network of your own'}"
        )
    parts = chosen(",".join(only)) if only else FAST
    request = ClientsRequest(
        only=parts, top_k=top_k, tol=tol, probes=probes, anchor=anchor, start=start, bn=bn,
        versions=versions(),
    )  # fmt: skip
    report = reporter(progress=on.get("progress", False))
    targets = targets_of(*named, on, bn)
    if rounds:
        targets = along(targets, rounds, UPLOADS)
    found = measured(targets, request, report, again=recompute, possible=not only)
    return Clients(found, runs_of(found, targets.registry) if rounds else ())
