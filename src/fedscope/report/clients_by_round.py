"""Clients by round: gaps, alignment, cost of averaging, H_N and H_D; the charts follow the slider."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.colors import to_hex

from fedscope.figures import style
from fedscope.figures.intervals import reach
from fedscope.figures.text.client_rounds import ROUNDS_KINDS, Curve, RoundsKind, measured
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.run_record import RunRecord
from fedscope.report.look import Chart
from fedscope.report.rounds import Line, chart
from fedscope.report.subjects import SYMBOLS, Key, Subject, Subjects, key_of, legible, run_key

Rounds = Mapping[int, Sequence[ClientsRecord]]  # of each round the fullest record first


def clients_by_round(runs: Sequence[RunRecord], given: Sequence[ClientsRecord], who: Subjects) -> list[Chart]:
    """Return the charts of the means over the clients, for the runs that have two rounds measured.

    ``given`` are records beside those that the runs have. Of one run every panel has the lines of a sum and
    its parts; of several, each of the main numbers has a line for each run.
    """
    found = dict(_of_subjects(runs, given))
    charts = []
    for kind in ROUNDS_KINDS:
        curves = measured([one for rounds in found.values() for own in rounds.values() for one in own], kind)
        drawn = _of_runs(found, curves, who) if len(found) > 1 else _of_one(found, curves)
        charts += [
            _chart(kind, place, name, lines, found) for place, (name, lines) in enumerate(drawn) if lines
        ]
    return charts


def _of_subjects(runs: Sequence[RunRecord], given: Sequence[ClientsRecord]) -> Iterator[tuple[Key, Rounds]]:
    records: dict[Key, list[ClientsRecord]] = {run_key(run): list(run.clients) for run in runs}
    for one in given:
        records.setdefault(key_of(one.checkpoint), []).append(one)
    for key, own in records.items():
        if len(rounds := _most_rounds(own)) > 1:
            yield key, rounds


def _most_rounds(records: Sequence[ClientsRecord]) -> Rounds:
    by_samples: dict[int, dict[int, list[ClientsRecord]]] = {}
    for one in sorted(records, key=lambda one: -len(one.measured)):
        if one.checkpoint.round is not None:
            rounds = by_samples.setdefault(one.problem.samples, {})
            rounds.setdefault(one.checkpoint.round, []).append(one)
    return max(by_samples.items(), key=lambda item: (len(item[1]), item[0]), default=(0, {}))[1]


def _of_runs(
    found: Mapping[Key, Rounds], curves: Sequence[Curve], who: Subjects
) -> Iterator[tuple[str, list[Line]]]:
    for curve in (one for one in curves if one.main):
        lines = [line for key, rounds in found.items() if (line := _line(who[key], rounds, curve))]
        yield curve.name, lines


def _of_one(found: Mapping[Key, Rounds], curves: Sequence[Curve]) -> Iterator[tuple[str, list[Line]]]:
    for panel in dict.fromkeys(curve.panel for curve in curves):
        own = [curve for curve in curves if curve.panel == panel]
        colors = [to_hex(legible(color)) for color in style.method_colors(len(own))]
        lines = [
            _line(_part(place, curve.line or panel, colors[place]), rounds, curve)
            for rounds in found.values()
            for place, curve in enumerate(own)
        ]
        yield panel, [line for line in lines if line]


def _part(place: int, name: str, color: str) -> Subject:
    """Return the look of a part of a sum; its index is that of no run, whose check box it does not follow."""
    return Subject(-1 - place, name, color, "solid", SYMBOLS[place % len(SYMBOLS)])


def _line(subject: Subject, rounds: Rounds, curve: Curve) -> Line | None:
    points = []
    for round in sorted(rounds):
        number = next((found for one in rounds[round] if (found := curve.of(one))), None)
        if number is not None:
            points.append((round, number.value, reach(*number.error) if number.error else float("nan")))
    return (subject, points) if len(points) > 1 else None


def _chart(
    kind: RoundsKind, place: int, name: str, lines: Sequence[Line], found: Mapping[Key, Rounds]
) -> Chart:
    samples = sorted(
        {one.problem.samples for rounds in found.values() for own in rounds.values() for one in own}
    )
    numbers = " or ".join(f"{number:,}" for number in samples)
    caption = f"Means over the clients, weighted by p_k, on {numbers} samples of all; bands: 95 % intervals."
    return chart(f"clients-{kind}-{place}", name, lines, caption)
