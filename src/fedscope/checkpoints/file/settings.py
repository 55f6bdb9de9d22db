"""Everything that determines the bits of a run: the options of ``fedscope train``."""

import operator
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field, model_validator

from fedscope.checkpoints.file.fields import NonNegative, Positive, StrictModel, later
from fedscope.checkpoints.file.kept_steps import KeptSteps
from fedscope.choices import Precision, ReadingName, Shortcut

PROBE_SAMPLES = 512  # that --probe-curvature measures on, unless another number is asked for


class Settings(StrictModel):
    """Everything that determines the bits of a run; the fields are the options of ``fedscope train``."""

    method: str = "fedavg"
    options: dict[str, bool | int | float | str] = Field(
        default_factory=dict
    )  # of the method, by name (``--set``)
    reading: ReadingName = "paper"
    dataset: str = "digits"
    # not ``later``: an empty text is not written either
    test_data: str | None = Field(None, exclude_if=operator.not_)  # of a data set of the user's own
    loss: str | None = later(None)  # MODULE:FUNCTION of (output, targets); None: cross-entropy
    augmentation: str | None = None
    model: str | None = None
    lora: str | None = later(None)
    partition: str = "dirichlet_balanced"
    alpha: float | None = 0.5
    exhausted: Literal["redraw", "refill"] = "redraw"
    phi: Annotated[float, Field(gt=0, le=1)] | None = None
    rho: Annotated[float, Field(gt=0, le=1)] | None = None
    shards: Positive | None = later(None)
    classes_per_client: Positive | None = later(None)
    clients: Positive = 8
    participation: Annotated[float, Field(gt=0, le=1)] = 1.0
    sampling: Literal["all", "fixed_fraction", "bernoulli"] = "fixed_fraction"
    memory: Literal["keep", "reset"] = "keep"
    rounds: Positive = 20
    epochs: Positive = 2
    local_steps: Positive | None = later(None)
    stragglers: Annotated[float, Field(ge=0, le=1)] = later(0.0)
    straggler_min: Positive = later(1)
    batch_size: Positive = 32
    lr: NonNegative = 0.05
    lr_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    lr_schedule: Literal["exponential", "step", "cosine"] = later("exponential")
    lr_step: Positive | None = later(None)
    lr_min: NonNegative = later(0.0)
    lr_warmup: Annotated[int, Field(ge=0)] = later(0)
    optimizer: Literal["sgd", "adam", "adamw"] = later("sgd")
    adam_beta1: Annotated[float, Field(ge=0, lt=1)] = later(0.9)
    adam_beta2: Annotated[float, Field(ge=0, lt=1)] = later(0.999)
    adam_eps: Annotated[float, Field(gt=0, allow_inf_nan=False)] = later(1e-8)
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    nesterov: bool = False
    optimizer_state: Literal["round", "client"] = "round"
    weight_decay: NonNegative = 1e-4
    clip: Annotated[float, Field(gt=0)] | None = None
    precision: Precision = "fp32"
    compile: bool = False
    head: bool | None = None
    shortcut: Shortcut | None = None
    drop_last: bool = False
    weights: Literal["n_k", "n_used", "uniform"] | None = None
    stack: Positive = 1
    train_samples: Positive | None = None
    test_samples: Positive | None = None
    clients_limit: Positive | None = None
    steps_limit: Positive | None = None
    validation: Annotated[float, Field(ge=0, le=0.5)] = later(0.0)
    evaluate_on: Literal["test", "validation"] = "test"
    eval_model: Literal["cld", "sel", "all"] = "cld"
    eval_drop_last: bool | None = None
    evaluate_every: Positive = later(1)
    target: Annotated[float, Field(gt=0, le=1)] | None = None
    shift: Literal["none", "bernoulli", "fixed10"] = "none"
    shift_probability: Annotated[float, Field(ge=0, le=1)] = 0.05
    shift_sequence: Annotated[int, Field(ge=0)] = 0
    shift_metric: Literal["mean_best_since_shift", "mean_current"] = "mean_best_since_shift"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    device: str = "cpu"
    threads: Positive = 1
    save_clients: Literal["last", "all", "none"] = "last"
    keep_every: Annotated[int, Field(ge=0)] = 0
    keep_steps: str | None = later(None)  # EVERY:CLIENTS:ROUNDS
    probe_curvature: Annotated[int, Field(ge=0)] = later(0)
    probe_samples: Positive = later(PROBE_SAMPLES)

    @model_validator(mode="after")
    def _keeps_the_rules(self) -> "Settings":
        for is_broken, said in _RULES:
            if is_broken(self):
                raise ValueError(said.format(self, max=_most_kept(self)))
        return self


def _most_kept(settings: Settings) -> tuple[int, int]:
    kept = KeptSteps.parse(settings.keep_steps)
    return max(kept.clients or (-1,)), max(kept.rounds or (0,))


_RULES: tuple[tuple[Callable[[Settings], object], str], ...] = (
    (lambda s: s.nesterov and not s.momentum, "Nesterov momentum needs --momentum above 0"),
    (
        lambda s: s.momentum and s.optimizer != "sgd",
        "--momentum is of --optimizer sgd; use --momentum 0 with {0.optimizer}, which has --adam-beta1",
    ),
    (
        lambda s: _most_kept(s)[0] >= s.clients,
        "--keep-steps names client {max[0]}, and there are {0.clients}, counted from 0",
    ),
    (lambda s: _most_kept(s)[1] > s.rounds, "--keep-steps names round {max[1]} of {0.rounds}"),
    (
        lambda s: (s.lr_schedule == "step") != (s.lr_step is not None),
        "--lr-schedule step needs --lr-step, the rounds from one drop to the next; no other takes it",
    ),
    (lambda s: s.lr_min > s.lr, "--lr-min {0.lr_min:g} is above --lr {0.lr:g}; lower it"),
    (
        lambda s: s.stragglers and s.local_steps and s.straggler_min > s.local_steps,
        "--straggler-min {0.straggler_min} is above {0.local_steps} steps; lower it",
    ),
    (
        lambda s: s.stragglers and not s.local_steps and s.straggler_min > s.epochs,
        "--straggler-min {0.straggler_min} is above {0.epochs} epochs; lower it",
    ),
    (
        lambda s: s.shift != "none" and s.evaluate_every > 1,
        "--shift is summarised by the accuracy of every round; leave --evaluate-every out",
    ),
    (
        lambda s: s.shift == "none" and (s.shift_probability, s.shift_sequence) != (0.05, 0),
        "--shift-probability and --shift-sequence have no effect without --shift; leave them out, or add "
        "--shift bernoulli or fixed10",
    ),
    (
        lambda s: s.validation and s.evaluate_on == "validation",
        "--evaluate-on validation is the data set's own split; leave it out, or --validation",
    ),
    (
        lambda s: s.stack > 1 and (s.compile or s.precision != "fp32"),
        "--stack is for small models in fp32; use it without --compile and --precision bf16",
    ),
)
