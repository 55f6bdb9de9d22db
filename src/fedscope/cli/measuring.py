"""What `fedscope hessian` does: measure each checkpoint, and show the records together."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup

from fedscope.checkpoints.file.checkpoint import versions
from fedscope.checkpoints.registry.registry import Registry
from fedscope.cli import answers, console, hessian_answers
from fedscope.cli.analysis import SHARED
from fedscope.cli.hessian_shown import show, shown
from fedscope.cli.problems import problems, remarks
from fedscope.cli.reading import request_of
from fedscope.federated.parallel import workers
from fedscope.records.entries import Record
from fedscope.workflows.curvature.measure import measure
from fedscope.workflows.progress import silent
from fedscope.workflows.results.cache import Keeper


def run(
    place: hessian_answers.Place | None,
    json_target: str | None,
    recompute: bool,
    figure: str | None,
    kind: Any,
    **others: Any,
) -> None:
    """Measure the checkpoints, print and write their records, and draw them if asked to.

    What the same command says the next time is kept at ``place``.
    """
    given = {"figure": figure, "kind": kind, **others}
    source = {name: given[name] for name in SHARED}
    request = replace(request_of(given, source), versions=versions())
    if figure:
        from fedscope.figures.style import check_format  # matplotlib: not for a table

        check_format(Path(figure))
    keep = Registry(source["registry"]).analysis
    paths = place.checkpoints if place else ()
    known = [hessian_answers.bases(given, path, clients=request.clients) for path in paths]
    with joined_group() as group:
        stage = silent if group is not None and group.rank() else console.progress
        found = problems(**source)
        keepers = [Keeper(keep if group is None else None) for _ in found]
        records = [
            measure(problem, request, stage, keep=keeper, again=recompute, group=group)
            for problem, keeper in zip(found, keepers, strict=True)
        ]
        if group is not None and group.rank():
            return
    if place and paths == tuple(problem.path for problem in found):
        for bases, record, problem in zip(known, records, found, strict=True):
            hessian_answers.keep_bases(bases, record, remarks([problem], source["samples"]))
        if all(known):
            rests = {path: stamp for bases in known for path, stamp in bases[-1].rests.items()}
            _keep(place.file, rests, remarks(found, source["samples"]), records, keepers)
    if not console.in_json(json_target, console.one_or_all(records)):
        show(records)
    if figure:
        _draw(records, kind, Path(figure))


def _keep(
    file: Path,
    rests: answers.Rests,
    said: Sequence[console.Piece],
    records: Sequence[Record],
    keepers: Sequence[Keeper],
) -> None:
    """Keep what the same command will say the next time, where every result has a file of its own."""
    files = [keeper.file for keeper in keepers if keeper.file]
    results = answers.stamps(files)  # before they are read again: as they will be found
    if results is None or len(files) < len(records):
        return
    kept = [keeper.result(path.stem) for keeper, path in zip(keepers, files, strict=True)]
    again = [
        {**result, "checkpoint": record["checkpoint"], "reused": True}
        for record, result in zip(records, kept, strict=True)
        if result
    ]
    if len(again) == len(records):
        content = console.one_or_all(again)
        answers.keep(file, {**rests, **results}, content, list(shown(again)), said)


def _draw(records: list[Record], kind: Any, path: Path) -> None:
    from fedscope.figures.provenance import made_from
    from fedscope.figures.spectrum.from_records import draw
    from fedscope.figures.style import save

    save(draw(records, kind), path, record=made_from(records))


@contextmanager
def joined_group() -> Iterator[ProcessGroup | None]:
    """Join the processes that torchrun started, which share every product's batches; None without it."""
    if not workers.under_torchrun():
        yield None
        return
    with workers.joined():
        yield dist.group.WORLD
