"""One run, trained by this process and its workers, or by the processes that torchrun started."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import log
from shlex import quote

import torch

from fedscope.checkpoints.file.fields import checked_name
from fedscope.checkpoints.file.kept_steps import KeptSteps
from fedscope.checkpoints.file.schema import PresetUse, Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.errors import UserError
from fedscope.federated.parallel import workers
from fedscope.federated.server.run_rounds import assist, train
from fedscope.federated.server.run_summary import summary
from fedscope.federated.setup.federation import Federation, local_settings, open_run, prepare
from fedscope.loggers.logger import Logger, logged, logger
from fedscope.process import has_bfloat16
from fedscope.workflows.progress import SILENT, Reporter
from fedscope.workflows.train.curvature_probe import CurvatureProber
from fedscope.workflows.train.train_request import RunPlan, TrainedRun

EXPLODED = 10  # times the loss of guessing: finite, and hopeless


def train_run(plan: RunPlan, reporter: Reporter = SILENT) -> TrainedRun | None:
    """Train a run, or the rounds of it that are left; return what came of it, on rank 0."""
    request, name = plan.request, plan.request.name
    store = RunRegistry(request.registry)
    if name is not None and not request.resume and not workers.under_torchrun():  # rank 0 makes the folder
        store.check_free(name)
    before = store.run(str(name)) if request.resume else None
    if not workers.under_torchrun():
        loggers = _loggers(plan)
        federation = _prepared(plan, before)  # before the workers: what is wrong is said once
        run = _open(plan, federation, store, reporter)
        device = torch.device(plan.settings.device)
        others = workers.started(request.workers, device, plan.settings.threads, assist_run, plan, before)
        with _gone_if_not_begun(plan, store, run), run.locked(), others as group:
            return _lead(plan, group, federation, run, loggers, reporter)
    if request.workers > 1:
        raise UserError("torchrun already starts the workers; leave --workers out")
    with workers.joined() as group:
        federation = _prepared(plan, before)
        if group.rank:
            assist(group, federation)
            return None
        loggers = _loggers(plan)
        run = _open(plan, federation, store, reporter)
        with _gone_if_not_begun(plan, store, run), run.locked():
            return _lead(plan, group, federation, run, loggers, reporter)


def _loggers(plan: RunPlan) -> dict[str, Logger]:
    """Return the loggers of a run; what is missing for them is said before anything else is done."""
    return {name: logger(name) for name in plan.request.loggers}


@contextmanager
def _gone_if_not_begun(plan: RunPlan, registry: RunRegistry, run: RunFolder) -> Iterator[None]:
    """Delete a new run that a fault of the user's code ends before its first round is done.

    Nothing is lost by that, and the name is free for the mended code. A run whose worker was killed can be
    continued, and stays.
    """
    try:
        yield
    except UserError as error:
        if not plan.request.resume and not isinstance(error, workers.WorkerLost) and not run.metrics():
            registry.delete(run)
        raise


def assist_run(group: workers.Workers, plan: RunPlan, before: RunFolder | None) -> None:
    """Be a worker of the run that rank 0 trains; ``before`` is that run where it is continued."""
    assist(group, _prepared(plan, before))


def _prepared(plan: RunPlan, before: RunFolder | None) -> Federation:
    return prepare(
        plan.settings, dict(plan.options), plan.request.data_dir, before, choose_stack=plan.choose_stack,
        choose_threads=plan.choose_threads,
    )  # fmt: skip


def _open(plan: RunPlan, federation: Federation, registry: RunRegistry, reporter: Reporter) -> RunFolder:
    settings, use, request = federation.settings, plan.preset, plan.request
    _note_settings(federation, reporter)
    if use and not request.resume:
        _note_preset(federation, use, reporter)
    if request.name:
        run = open_run(federation, registry, checked_name(request.name), resume=request.resume, preset=use)
        if len(run.metrics()) >= settings.rounds:
            reporter.note(f"{run.name} has its {settings.rounds} rounds; with more --rounds it goes on")
        return run
    stem = request.stem or f"{settings.method}-{settings.dataset.replace(':', '-')}"
    _note_unfinished(settings, registry, reporter)

    def opened(free: str) -> RunFolder:
        return open_run(federation, registry, free + plan.suffixes[0], resume=False, preset=use)

    return registry.under_free_name(stem, opened, plan.suffixes)


def _note_unfinished(settings: Settings, registry: RunRegistry, reporter: Reporter) -> None:
    """Say how to go on with a run that has these settings and was interrupted: a new one is begun."""
    for run in registry.folders():
        with suppress(UserError):  # a damaged run
            manifest = run.manifest()
            if manifest.settings == settings and run.status(manifest) == "unfinished":
                where = f"--name {run.name} --registry {registry.root}"
                reporter.note(
                    f"a new run is begun; {run.name}, interrupted after round {len(run.metrics())}, has the "
                    f"same settings and goes on by `fedscope train --resume {where}`"
                )


def _note_settings(federation: Federation, reporter: Reporter) -> None:
    settings = federation.settings
    if federation.dataset.note:
        reporter.note(f"{settings.dataset}: {federation.dataset.note}")
    if settings.dataset == "domainnet_concept_shift" and settings.shift == "none":
        reporter.note("no concept shifts without --shift bernoulli or fixed10")
    if settings.precision == "bf16" and not has_bfloat16(torch.device(settings.device)):
        reporter.note("this processor has no bfloat16 instructions: --precision fp32 is faster here")
    for option in federation.method.options:
        value = settings.options[option.name]
        if option.rounds and float(value) > settings.rounds:
            mend = f"set it by --set {option.name}=ROUND if that is not meant"
            reporter.note(f"{option.name} {value} lies beyond the run's {settings.rounds} rounds; {mend}")
    personal = federation.method.personal
    if personal and not personal(federation.model, settings.options):
        reporter.note(
            f"{settings.model} has none of the tensors that {settings.method} leaves with its clients "
            "(FedBN: those of BatchNorm); all are averaged"
        )
    if settings.keep_steps and not federation.new_clients and (most := _keeps_none(federation)):
        reporter.note(
            f"--keep-steps {settings.keep_steps} keeps nothing: its clients make up to {most} local steps "
            "in a round"
        )


def _keeps_none(federation: Federation) -> int:
    """Return the most local steps of the clients of --keep-steps where none is kept; 0 where some are."""
    settings, kept = federation.settings, KeptSteps.parse(federation.settings.keep_steps)
    local = local_settings(settings, "n_k")
    rows = enumerate(federation.rows)
    most = max(local.round_steps(len(own)) for k, own in rows if kept.clients is None or k in kept.clients)
    return most if most < kept.every else 0


def _note_preset(federation: Federation, use: PresetUse, reporter: Reporter) -> None:
    values = {**federation.settings.model_dump(), **federation.settings.options}
    for key, why in use.provisional.items():
        reporter.note(f"{use.name}: {key} {values[key]} is provisional ({why})")
    for change in use.overridden:
        reporter.note(f"{use.name}: departs in {change}")


def _lead(
    plan: RunPlan,
    group: workers.Workers,
    federation: Federation,
    run: RunFolder,
    loggers: Mapping[str, Logger],
    reporter: Reporter,
) -> TrainedRun:
    until = plan.until or federation.settings.rounds
    with (
        reporter.rounds(f"{run.name}: round") as report,
        logged(run, loggers, reporter.note) as log,
    ):

        def show(m: Round) -> None:
            report(m.round, until, _progress(m))
            log(m)

        probe = CurvatureProber(federation, run.name) if federation.settings.probe_curvature else None
        try:
            metrics = train(federation, run, show, group, until=until, probe=probe)
        except KeyboardInterrupt:
            where = f"--name {run.name} --registry {quote(str(run.root))}"
            raise KeyboardInterrupt(f"go on with `fedscope train --resume {where}`") from None
    _note_explosion(federation, run, metrics[-1].train_loss, reporter)
    state = run.status(run.manifest())
    return TrainedRun(
        run=run.name,
        registry=str(run.folder.parent),
        state=state,
        seed=federation.settings.seed,
        lr=federation.settings.lr,
        final=str(run.last if state == "diverged" else run.final),
        best=str(run.best),
        **vars(summary(federation.settings, metrics)),
    )


def _progress(done: Round) -> str:
    name, loss = ("test", done.loss) if done.evaluated else ("training", done.train_loss)
    text = f"{name} loss {'not finite' if loss is None else f'{loss:.4f}'}"
    return text if done.accuracy is None else f"accuracy {done.accuracy:.2%}, {text}"


def _note_explosion(federation: Federation, run: RunFolder, loss: float | None, reporter: Reporter) -> None:
    if federation.dataset.train.loss is not None:  # whose scale is not known
        return
    text = federation.dataset.train.targets is not None
    guessing = log(federation.spec.classes or 2 if text else len(federation.dataset.classes))
    if loss is not None and loss > EXPLODED * guessing:
        reporter.note(
            f"{run.name}: the training loss is {loss:.3g}, that of guessing is {guessing:.2g}; lower --lr"
        )
