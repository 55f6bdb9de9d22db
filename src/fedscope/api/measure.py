"""The curvature of checkpoints and networks: of one, and of several beside each other."""

from collections.abc import Sequence
from typing import Any, Literal, Unpack

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedscope.api.printed_results import Drawn, axes_of, on_screen
from fedscope.api.reporting import reporter
from fedscope.api.sources import Found, On, Weights, found
from fedscope.checkpoints.file.checkpoint import versions
from fedscope.choices import BatchNormMode, OperatorName
from fedscope.errors import UserError, check_keywords
from fedscope.figures import own_axes
from fedscope.figures.embedded_record import made_from
from fedscope.figures.figure_kinds import SpectrumKind
from fedscope.figures.runs.row_dots import draw_forest
from fedscope.figures.spectrum.hessian_figures import draw
from fedscope.figures.style import paper_style
from fedscope.figures.text.comparison_table import comparison_table
from fedscope.figures.text.hessian_table import Table, hessian_table
from fedscope.figures.text.labels import titles
from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.differences import Difference, compared, differences_to_first
from fedscope.records.estimates import Eigenvalue
from fedscope.records.hessian_record import DensityEntry, HessianRecord, TraceEntry
from fedscope.records.influence_entry import Influence
from fedscope.workflows.curvature.influential_samples import images_of
from fedscope.workflows.curvature.measure_curvature import measure as measured
from fedscope.workflows.requests import CrossClientRequest, Request
from fedscope.workflows.sources.problem import Problem
from fedscope.workflows.study import Session


class Curvature(Drawn):
    """What was measured of one checkpoint; :attr:`record` has it as ``fedscope hessian --json`` prints it."""

    def __init__(self, record: HessianRecord, problem: Problem) -> None:
        self.record = record
        self._problem = problem

    @property
    def lambda_max(self) -> Eigenvalue:
        """The largest eigenvalue: ``value``, ``residual``, ``stderr_data``, the 95 % ``interval``."""
        return self.record.lambda_max

    @property
    def eigenvalues(self) -> tuple[Eigenvalue, ...]:
        """The leading ones, descending; with ``both_ends`` the smallest follow."""
        return self.record.eigenvalues

    @property
    def trace(self) -> TraceEntry:
        """The trace: ``value``, ``stderr_probe``, ``stderr_data``, the 95 % ``interval``.

        Raises:
            UserError: it was not measured, with ``only="lambda_max"``.
        """
        if self.record.trace is None:
            raise UserError("the trace was not measured: leave out only='lambda_max'")
        return self.record.trace

    @property
    def density(self) -> DensityEntry | None:
        """The eigenvalue density; None unless asked for."""
        return self.record.density

    @property
    def clients(self) -> CrossClientEntry | None:
        """H_N and H_D of the clients; None unless asked for."""
        return self.record.cross_client

    @property
    def influence(self) -> Influence | None:
        """Which samples make λ_max; None unless asked for."""
        return self.record.influence

    def table(self) -> Table:
        """Return the table that ``fedscope hessian`` prints."""
        return hessian_table([self.record])

    def to_dict(self) -> dict[str, Any]:
        """Return the record of schema ``fedscope/hessian/1``."""
        return self.record.to_json()

    def origin(self) -> dict[str, Any]:
        """Return checkpoint and settings."""
        return made_from([self.record])

    def figure(self, kind: SpectrumKind | None = None) -> Figure:
        """Return a picture: ``density``, ``eigenvalues``, ``clients``, ``bars`` or ``influence``.

        By default the density if there is one, else the eigenvalues.

        Raises:
            UserError: what is shown was not measured.
        """
        kind = kind or ("density" if self.density else "eigenvalues")
        images = images_of(self._problem, self.record) if kind == "influence" else None
        return on_screen(draw([self.record], kind, images))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the density, or without one the eigenvalues, and return the axes.

        Raises:
            UserError: nothing is finite.
        """
        axes = axes_of(ax)
        with paper_style():
            own_axes.spectra(axes, [self.record])
        return axes


def measure(
    what: Weights | None = None,
    *,
    top_k: int = 1,
    both_ends: bool = False,
    layers: bool = False,
    blocks: bool = False,
    preconditioned: bool = False,
    only: Literal["lambda_max"] | None = None,
    tol: float = 1e-3,
    probes: int | None = None,
    trace_rtol: float = 0.05,
    density: bool = False,
    influence: int | None = None,
    clients: bool | CrossClientRequest = False,
    operator: OperatorName = "hessian",
    parameters: Sequence[str] = (),
    bn: BatchNormMode = "eval",
    recompute: bool = False,
    **on: Unpack[On],
) -> Curvature:
    """Measure the curvature of the loss at one checkpoint or network.

    Results of checkpoints are kept in the registry and found again; of a network that is given as an object
    nothing is kept.

    Args:
        what: RUN, RUN@25, RUN@best, RUN@client3 or a file; a run, a checkpoint; a ``torch.nn.Module``, or a
            state_dict, with ``data``. None: the registry's newest run.
        top_k: how many of the largest eigenvalues.
        both_ends: also as many of the smallest.
        layers: also λ_max of each layer's own diagonal block.
        blocks: also that of each block of a stack, such as a transformer's.
        preconditioned: also λ_max of P⁻¹H, of a run with FedAdagrad, FedAdam or FedYogi: see the record's
            ``preconditioned``.
        only: ``lambda_max``: without the trace and its products.
        tol: residual of each eigenpair, relative to λ_max.
        probes: fixed number of the trace's probes, instead of ``trace_rtol``.
        trace_rtol: standard error of the trace, relative to its value.
        density: also the eigenvalue density.
        influence: also which samples make λ_max, and so many of the largest.
        clients: also H_N and H_D of the run's clients; how is a ``CrossClientRequest``.
        operator: ``hessian``, ``ggn`` or ``fisher``.
        parameters: patterns of names, such as ``layer3.*``: only their block.
        bn: BatchNorm's statistics: ``eval`` as stored, ``recalibrate``, or the ``batch``'s own.
        recompute: measure again what the registry has.
        **on: samples, data and place, see :class:`On`.

    Raises:
        UserError: a checkpoint, data or option is wrong; the message says how to mend it.
    """
    check_keywords(measure, on, On)
    crossing = clients if isinstance(clients, CrossClientRequest) else CrossClientRequest()
    request = Request(
        top_k=top_k, both_ends=both_ends, layers=layers, blocks=blocks, preconditioned=preconditioned,
        only=only, tol=tol, probes=probes, trace_rtol=trace_rtol, density=density, influence=influence,
        clients=bool(clients), cross_client=crossing, operator=operator, parameters=tuple(parameters), bn=bn,
        versions=versions(),
    )  # fmt: skip
    sources = found(() if what is None else (what,), on, bn)
    return curvatures_of(sources, request, on, again=recompute)[0]


def curvatures_of(sources: Found, request: Request, on: On, *, again: bool = False) -> list[Curvature]:
    """Return what a request measures of each problem."""
    session = Session(reporter(progress=on.get("progress", False)), sources.keep, again)
    return [Curvature(measured(problem, request, session), problem) for problem in sources.problems]


class Comparison(Drawn):
    """The differences of several checkpoints to the first one, with errors and verdicts."""

    def __init__(self, curvatures: Sequence[Curvature]) -> None:
        self.curvatures = tuple(curvatures)
        self._records = [one.record for one in curvatures]

    @property
    def differences(self) -> list[list[Difference]]:
        """Of each but the first, a row of its differences to the first.

        Each has ``quantity``, ``value``, ``stderr``, the 95 % ``interval`` and a ``verdict``. All verdicts
        together are right with 95 % (Holm 1979).
        """
        return differences_to_first(self._records)

    def __getitem__(self, place: int) -> Curvature:
        return self.curvatures[place]

    def __len__(self) -> int:
        return len(self.curvatures)

    def table(self) -> Table:
        """Return the table of differences that ``fedscope hessian A B`` prints."""
        return comparison_table(self._records)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the records of schema ``fedscope/hessian/1``, each with its ``differences`` to the first."""
        return [record.to_json() for record in compared(self._records)]

    def origin(self) -> dict[str, Any]:
        """Return checkpoints and settings."""
        return made_from(self._records)

    def figure(self, kind: SpectrumKind = "bars") -> Figure:
        """Return a picture of all: ``bars`` of λ_max and trace, ``density``, ``eigenvalues``, ``influence``.

        Raises:
            UserError: what is shown was not measured.
        """
        return on_screen(draw(self._records, kind))

    def plot(self, ax: Axes | None = None, *, quantity: str = "λ_max") -> Axes:
        """Draw each one's difference to the first in a quantity, with its 95 % interval; return the axes.

        Raises:
            UserError: they were not compared in this quantity.
        """
        rows = [[one for one in row if one.quantity == quantity] for row in self.differences]
        if not all(rows):
            known = dict.fromkeys(one.quantity for row in self.differences for one in row)
            raise UserError(f"they were not compared in {quantity!r}; choose one of {', '.join(known)}")
        axes, names = axes_of(ax, height=0.7 + 0.25 * len(rows)), titles(self._records)
        with paper_style():
            draw_forest(axes, names[1:], [row[0] for row in rows])
            axes.set_title(f"to {names[0]}")
        return axes


def compare(
    *what: Weights | Curvature,
    top_k: int = 1,
    tol: float = 1e-3,
    probes: int | None = None,
    trace_rtol: float = 0.05,
    density: bool = False,
    clients: bool = False,
    recompute: bool = False,
    **on: Unpack[On],
) -> Comparison:
    """Compare the curvature of two or more checkpoints or networks with that of the first.

    All are measured on the same samples with the same probes, so that differences have smaller errors than
    values.

    Args:
        *what: as for :func:`measure`; or what it returned, measured on the same samples.
        top_k: see :func:`measure`, as of tol, probes, trace_rtol, density, clients and recompute.
        **on: samples, data and place, see :class:`On`.

    Raises:
        UserError: fewer than two, or a checkpoint, data or option is wrong.
    """
    check_keywords(compare, on, On)
    if len(what) < 2:
        raise UserError("a comparison needs two or more checkpoints or networks")
    request = Request(
        top_k=top_k, tol=tol, probes=probes, trace_rtol=trace_rtol, density=density, clients=clients,
        versions=versions(),
    )  # fmt: skip
    weights = [one for one in what if not isinstance(one, Curvature)]
    new = iter(curvatures_of(found(weights, on), request, on, again=recompute) if weights else ())
    return Comparison([one if isinstance(one, Curvature) else next(new) for one in what])
