"""A federated run, round by round: sample, train locally, average, evaluate, keep.

Every worker takes part in a round; rank 0 alone averages and writes (:mod:`.one_round`). Every draw comes
from a stream keyed by (seed, purpose, round, client), clients are trained in stacks that do not depend on the
workers, and their uploads are summed in one order: so the number of workers changes no bit. A round counts
once ``last.pt`` is written, the last one once ``final.pt`` is, and all that the next one needs is in files by
then, so an interrupted run continues with the same bits.
"""

from collections.abc import Callable

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.registry import Run
from fedscope.federated.parallel.dispatch import Dispatch
from fedscope.federated.parallel.workers import Workers
from fedscope.federated.server.one_round import Probe, Server
from fedscope.federated.setup.federation import Federation
from fedscope.storage import move, remove


def train(
    federation: Federation,
    run: Run,
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
    server = Server(federation, run, Dispatch(federation, workers or Workers()), probe)
    rounds = federation.settings.rounds
    if rounds > run.manifest().settings.rounds:
        run.extend(rounds)
    server.dispatch.begin(rounds if server.diverged else len(server.metrics))
    last = rounds if until is None else min(until, rounds)
    for round in range(len(server.metrics) + 1, last + 1):
        if server.diverged:
            break
        report(server.round(round, last=round == last))
    if server.diverged:
        run.write_manifest(run.manifest().model_copy(update={"diverged": len(server.metrics)}))
        return server.metrics
    if len(server.metrics) < rounds:
        return server.metrics
    if not run.final.exists():  # of an earlier fedscope, which renamed the last round's model here
        move(run.last, run.final, below=run.root)
    remove(run.last, below=run.root, missing_ok=True)
    return server.metrics


def assist(workers: Workers, federation: Federation) -> None:
    """Do another worker's part of the run, until its last round."""
    dispatch = Dispatch(federation, workers)
    for round in range(dispatch.begin(0) + 1, federation.settings.rounds + 1):
        for _ in dispatch.uploads(round, dispatch.enter(round), None):
            raise AssertionError("only rank 0 sees uploads")
        last = dispatch.share_model()
        if dispatch.evaluates(round, last=last):
            dispatch.evaluate({}, None)
            dispatch.validate({}, None)
        dispatch.peaks()
        if last:
            break
