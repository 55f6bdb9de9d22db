"""The rounds of a run that are done: read where a run goes on, and refused where it cannot."""

from importlib.metadata import version

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.checkpoints.verification.claims import Account, foreign_problem
from fedscope.errors import UserError
from fedscope.federated.parallel.memory import Memory
from fedscope.federated.parallel.training_round import TrainingRound
from fedscope.federated.setup.federation import Federation
from fedscope.storage import remove


def done_rounds(federation: Federation, run: RunFolder, training: TrainingRound) -> list[Round]:
    """Load the newest global model of the run; return the metrics up to it."""
    for leftover in run.folder.rglob(".*.tmp"):  # of a process killed while it wrote
        remove(leftover, below=run.root)
    newest = run.newest
    if not newest.exists():
        _check_unbegun(run)
        run.write_metrics([])
        return []
    checkpoint = load_checkpoint(newest)
    problem = foreign_problem(newest.name, checkpoint.info, Account(run.manifest(), (), False))
    if problem:
        raise UserError(f"cannot resume {run.name!r}: {newest.name} {problem}; restore it from a copy")
    training.model.load(checkpoint.state)
    training.start.copy_(training.model.values[0])
    training.counters.copy_(training.model.counters)
    if checkpoint.info.labels not in ((), federation.labels(checkpoint.info.round)):
        raise UserError(
            f"cannot resume {run.name!r}: its concepts shift otherwise under numpy {version('numpy')} "
            f"than under {checkpoint.info.versions.get('numpy')}; use that numpy, or train it anew"
        )
    metrics = run.metrics()[: checkpoint.info.round]
    if [m.round for m in metrics] != list(range(1, checkpoint.info.round + 1)):
        raise UserError(
            f"cannot resume {run.name!r}: its weights are of round {checkpoint.info.round}, which its "
            "metrics do not reach; train it anew under another --name"
        )
    run.write_metrics(metrics)
    return metrics


def check_remembered(
    run: RunFolder, method: str, rounds: list[Round], memory: Memory, *, of_clients: bool
) -> None:
    last = {client: one.round for one in rounds for client in one.clients}
    lost = [f"client {client}" for client in memory.lost(last)] if of_clients else []
    if not memory.holds(len(rounds)):
        lost = [f"round {len(rounds)}"]
    if lost:
        raise UserError(
            f"{run.name} cannot be continued: what {method} remembers of {lost[0]} is not in "
            f"{memory.folder}; restore it from a copy, or train it anew under another --name"
        )


def _check_unbegun(run: RunFolder) -> None:
    """Refuse a run whose newest model is lost; one round may be recorded before there is any."""
    recorded = sum(1 for _ in run.each_round())
    if run.manifest().partial or run.is_finished or recorded > 1:
        raise UserError(
            f"cannot resume {run.name!r}: it has {recorded} rounds, and the model after the newest one is "
            "not here; pull the whole run, or train it anew under another --name"
        )
