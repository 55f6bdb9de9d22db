"""Training a federated method, and the run that comes of it."""

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from torch import Tensor, nn

from fedscope.api.reporting import reporter
from fedscope.api.run import Run
from fedscope.api.sources import registry_folder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.data.sets import own_data as own_data
from fedscope.errors import UserError
from fedscope.own import is_of_session, reference_to
from fedscope.process import threads_kept
from fedscope.workflows.train.train_request import TrainRequest
from fedscope.workflows.train.train_runs import train as trained


class TrainSettings(TypedDict, total=False):
    """The settings of a run, as ``fedscope train`` has them as options; what is left out has its default."""

    reading: Literal["paper", "code"]
    dataset: str
    augmentation: str
    partition: str
    alpha: float
    exhausted: Literal["redraw", "refill"]
    phi: float
    rho: float
    shards: int
    classes_per_client: int
    clients: int
    participation: float
    sampling: Literal["all", "fixed_fraction", "bernoulli"]
    memory: Literal["keep", "reset"]
    rounds: int
    epochs: int
    local_steps: int
    stragglers: float
    straggler_min: int
    batch_size: int
    lr: float
    lr_decay: float
    lr_schedule: Literal["exponential", "step", "cosine"]
    lr_step: int
    lr_min: float
    lr_warmup: int
    optimizer: Literal["sgd", "adam", "adamw"]
    adam_beta1: float
    adam_beta2: float
    adam_eps: float
    momentum: float
    nesterov: bool
    optimizer_state: Literal["round", "client"]
    weight_decay: float
    clip: float
    precision: Literal["fp32", "bf16"]
    compile: bool
    lora: str
    head: bool
    shortcut: Literal["A", "B"]
    drop_last: bool
    weights: Literal["n_k", "n_used", "uniform"]
    stack: int | Literal["auto"]
    train_samples: int
    test_samples: int
    clients_limit: int
    steps_limit: int
    validation: float
    evaluate_on: Literal["test", "validation"]
    eval_model: Literal["cld", "sel", "all"]
    eval_drop_last: bool
    evaluate_every: int
    target: float
    shift: Literal["none", "bernoulli", "fixed10"]
    shift_probability: float
    shift_sequence: int
    shift_metric: Literal["mean_best_since_shift", "mean_current"]
    seed: int
    save_clients: Literal["last", "all", "none"]
    keep_every: int
    keep_steps: str | None
    probe_curvature: int
    probe_samples: int


def train(
    *,
    method: str | None = None,
    preset: str | None = None,
    model: str | nn.Module | Callable[[], nn.Module] | None = None,
    data: Any = None,
    test_data: Any = None,
    loss: str | Callable[..., Tensor] | None = None,
    options: Mapping[str, bool | int | float | str] | None = None,
    name: str | None = None,
    resume: bool = False,
    registry: str | Path | None = None,
    data_dir: str | Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    workers: int = 1,
    progress: bool = False,
    **settings: Unpack[TrainSettings],
) -> Run:
    """Train a federated method and register its checkpoints; without arguments, FedAvg on bundled digits.

    Args:
        method: ``fedavg``, ``feddyn+man``…, see ``fedscope methods list``.
        preset: of a paper, see ``fedscope presets list``; settings given beside it change it.
        model: a name of ``fedscope models list``; MODULE:FACTORY or a function that makes a network, whose
            weights then follow from the seed; or a module, whose weights are where training begins.
        data: of your own, instead of ``dataset``: MODULE:FACTORY, a function that returns data, or data: a
            pair (inputs, targets), a data set, a loader, or any other iterable of one of these per client.
        test_data: to evaluate on, the same; without it a fifth of the data is held out.
        loss: (output, targets) ↦ the mean over the batch, or MODULE:FUNCTION; by default cross-entropy.
        options: of the method, such as ``{"prox.mu": 0.1}``.
        name: of the run; None: METHOD-DATASET, with a number where it is taken.
        resume: continue the run ``name``, or with more ``rounds`` a finished one.
        registry: folder of the runs; by default FEDSCOPE_REGISTRY, or ``checkpoints``.
        data_dir: folder of data sets; by default FEDSCOPE_DATA.
        device: ``auto``, ``cpu``, ``cuda``…
        threads: of each worker, on which the bits depend; None: the cores, divided by the workers; one
            where a step is little work.
        workers: processes that share the clients.
        progress: show a bar on standard error.
        **settings: see :class:`TrainSettings`.

    Raises:
        UserError: settings, data, device or name cannot be had, or the run diverged, which is kept.
    """
    named = {"method": method, "model": _model(model), "test_data": _data(test_data), **settings}
    if loss is not None:
        named["loss"] = loss if isinstance(loss, str) else reference_to(loss)
    if data is not None:
        named["dataset"] = _data(data)
    own_data.forget()  # a function of a notebook may return others than before
    given = {key: value for key, value in named.items() if value is not None}
    objects = [key for key, value in given.items() if isinstance(value, str) and is_of_session(value)]
    if objects and workers > 1:
        raise UserError(
            f"workers are processes that {objects[0]} cannot be sent to: put it into a function of a file of "
            "its own, or leave workers out"
        )
    folder = registry_folder({"registry": registry} if registry is not None else {})
    request = TrainRequest(
        registry=folder,
        settings=given,
        options={key: str(value) for key, value in (options or {}).items()},
        preset=preset,
        name=name,
        resume=resume,
        data_dir=Path(data_dir) if data_dir is not None else None,
        device=device,
        threads=threads,
        workers=workers,
        named={key: key for key in settings},
    )
    with threads_kept():
        (found,) = trained(request, reporter(progress=progress))
    if found.diverged:
        raise UserError(
            f"loss or weights not finite: {found.run} diverged in round {found.rounds}, and is kept as it "
            f"is; train anew with lr below {found.lr:g}, or with clip"
        )
    return Run(RunRegistry(folder).run(found.run))


def _model(given: str | nn.Module | Callable[[], nn.Module] | None) -> str | None:
    if given is None or isinstance(given, str):
        return given
    return reference_to(_copies(given) if isinstance(given, nn.Module) else given)


def _copies(model: nn.Module) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        return deepcopy(model)

    make.__qualname__ = type(model).__name__
    return make


def _data(given: Any) -> str | None:
    if given is None or isinstance(given, str):
        return given
    if callable(given):
        return reference_to(given)
    held = list(given) if isinstance(given, Iterator) else given

    def make() -> Any:
        return held

    make.__qualname__ = type(given).__name__
    return reference_to(make)
