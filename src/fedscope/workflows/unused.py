"""Rules that refuse settings without effect beside others."""

import math
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from fedscope.checkpoints.file.kept_steps import KeptSteps
from fedscope.workflows.option_fields import Rule, check

if TYPE_CHECKING:
    from fedscope.checkpoints.file.settings import Settings

_WITHIN = "as the rate never falls in {0.rounds} rounds, {0.lr_warmup} of them warm-up"
_DIVIDING = ("alpha", "exhausted", "phi", "rho", "shards", "classes_per_client")


def _is_read(parameter: str, settings: "Settings") -> bool:
    from fedscope.data.partition.draw_partition import PARAMETERS

    return parameter in PARAMETERS.get(settings.partition, _DIVIDING)


def _remembers(method: str) -> bool:
    from fedscope.federated.methods import parse

    return bool(parse(method).memory)


def _falls(settings: "Settings", after: int) -> bool:
    return settings.rounds - settings.lr_warmup > after


def _has_stragglers(settings: "Settings") -> bool:
    """Say whether the share of stragglers is one client or more of a round's, where their number is known."""
    if not settings.stragglers or settings.sampling == "bernoulli" or settings.clients_limit:
        return True
    count = math.floor(settings.clients * settings.participation + 1e-9)
    return math.floor(settings.stragglers * count + 1e-9) > 0


SETTINGS: "tuple[Rule[Settings], ...]" = (
    *(Rule(name, partial(_is_read, name), "with --partition {0.partition}") for name in _DIVIDING),
    Rule("memory", lambda s: _remembers(s.method), "with {0.method}, whose clients remember nothing"),
    Rule("optimizer_state", lambda s: s.momentum or s.optimizer != "sgd", "without --momentum"),
    Rule("epochs steps_limit", lambda s: not s.local_steps, "with --local-steps"),
    Rule("straggler_min", lambda s: s.stragglers, "without --stragglers"),
    Rule(
        "stragglers",
        lambda s: not s.stragglers or s.straggler_min < (s.local_steps or s.epochs),
        "where even a straggler does all the work, as --straggler-min is {0.straggler_min}",
    ),
    Rule("stragglers", _has_stragglers, "on so few clients in a round, of which the share is less than one"),
    Rule("lr_decay", lambda s: s.lr_schedule != "cosine", "with --lr-schedule cosine"),
    Rule("lr_min", lambda s: s.lr_schedule == "cosine", "without --lr-schedule cosine"),
    Rule("lr_schedule lr_min", lambda s: s.lr_schedule != "cosine" or _falls(s, 1), _WITHIN),
    Rule("lr_schedule lr_step", lambda s: s.lr_schedule != "step" or _falls(s, s.lr_step or 1), _WITHIN),
    Rule("lr_decay", lambda s: s.lr_decay == 1 or _falls(s, s.lr_step or 1), _WITHIN),
    Rule("adam_beta1 adam_beta2 adam_eps", lambda s: s.optimizer != "sgd", "without --optimizer adam"),
    Rule("shift_probability", lambda s: s.shift == "bernoulli", "without --shift bernoulli"),
    Rule("shift_metric", lambda s: s.shift != "none", "without --shift"),
    Rule("keep_every", lambda s: s.keep_every <= s.rounds, "beyond the {0.rounds} rounds"),
    Rule(
        "keep_steps",
        lambda s: not s.local_steps or KeptSteps.parse(s.keep_steps).every <= s.local_steps,
        "beyond the {0.local_steps} local steps",
    ),
    Rule("probe_curvature", lambda s: s.probe_curvature <= s.rounds, "beyond the {0.rounds} rounds"),
    Rule("probe_samples", lambda s: s.probe_curvature, "without --probe-curvature"),
)
"""Of a training."""


def check_settings(settings: "Settings", named: Mapping[str, str]) -> None:
    check(SETTINGS, named, settings)
