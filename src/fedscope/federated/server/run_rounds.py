"""A federated run, round by round: sample, train locally, average, evaluate, keep.

Every worker takes part in a round; rank 0 alone averages and writes (:mod:`.one_round`). Every draw comes
from a stream keyed by (seed, purpose, round, client), clients are trained in stacks that do not depend on the
workers, and their uploads are summed in one order: so the number of workers changes no bit. A round counts
once ``last.pt`` is written, the last one once ``final.pt`` is, and all that the next one needs is in files by
then, so an interrupted run continues with the same bits.
"""

from collections.abc import Callable

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.federated.parallel.training_round import TrainingRound
from fedscope.federated.parallel.workers import Workers
from fedscope.federated.server.bookkeeper import Probe, RoundBookkeeper
from fedscope.federated.setup.federation import Federation
from fedscope.storage import remove


def train(
    federation: Federation,
    run: RunFolder,
    report: Callable[[Round], None],
    workers: Workers | None = None,
    *,
    until: int | None = None,
    probe: Probe | None = None,
) -> list[Round]:
    """Run the rounds that are left, calling ``report`` with each one's metrics; return all metrics.

    ``probe`` measures the evaluated model under ``--probe-curvature``. With ``until`` the run stops after
    that round, and can be continued at any time. A round that leaves the training loss or the model not
    finite is the last: its files are kept, and the manifest says that the run diverged.
    """
    bookkeeper = RoundBookkeeper(federation, run, TrainingRound(federation, workers or Workers()), probe)
    rounds = federation.settings.rounds
    if rounds > run.manifest().settings.rounds:
        run.extend(rounds)
    bookkeeper.training.share_progress(rounds if bookkeeper.diverged else len(bookkeeper.metrics))
    last = rounds if until is None else min(until, rounds)
    for round in range(len(bookkeeper.metrics) + 1, last + 1):
        if bookkeeper.diverged:
            break
        report(bookkeeper.round(round, last=round == last))
    if bookkeeper.diverged:
        run.write_manifest(run.manifest().model_copy(update={"diverged": len(bookkeeper.metrics)}))
        return bookkeeper.metrics
    if len(bookkeeper.metrics) < rounds:
        return bookkeeper.metrics
    remove(run.last, below=run.root, missing_ok=True)
    return bookkeeper.metrics


def assist(workers: Workers, federation: Federation) -> None:
    """Do another worker's part of the run, until its last round."""
    training = TrainingRound(federation, workers)
    for round in range(training.share_progress(0) + 1, federation.settings.rounds + 1):
        for _ in training.uploads(round, training.prepare(round), None):
            raise AssertionError("only rank 0 sees uploads")
        last = training.share_model()
        if training.evaluates(round, last=last):
            training.evaluate({}, None)
            training.validate({}, None)
        training.peaks()
        if last:
            break
