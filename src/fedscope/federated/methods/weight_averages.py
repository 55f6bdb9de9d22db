"""SWA and EMA of the server's models, and FedSWA and FedMoSWA, which end each client's path at a small rate.

``swa`` and ``ema`` keep an average beside the model that clients train, for any method: the average is what
is evaluated and saved, the model goes on as if there were none. SWA is the mean of the models from round
``swa.start`` on (Izmailov et al. 2018; on FedASAM: Caldarola et al. 2022, from 75 % of the rounds on); its
cycles of the learning rate are left to ``--lr-decay``. EMA: a ← βa + (1 − β)θ. Statistics of BatchNorm are
the trained model's.

FedSWA: within a round the local rate falls linearly from ``swa.rate_start``·η to ``swa.rate_end``·η over the
steps, and the server goes γ of the way to the mean. FedMoSWA: so do SCAFFOLD's clients, whose control
variates are means over the path by the mean rate, and c ← c + γ_c · mean change over the participants, not N.
Liu et al. 2025, from the authors' program; what its FedMoSWA runs has a constant rate (``--reading code``),
and FedSWA doubles the rate. Its c takes the first round's mean change whole, later ones γ_c times.
"""

from dataclasses import replace

from torch import Tensor

from fedscope.federated.methods.control import SCAFFOLD, part_of_the_way
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.views import Averaging, ServerStep


def running_mean(at: Averaging) -> Tensor:
    """Return the mean of the models from the first round that counts on; before it the model itself."""
    number = max(1, at.round - int(at.options["swa.start"]) + 1)
    return at.average + (at.model - at.average) / number if number > 1 else at.model


def moving_average(at: Averaging) -> Tensor:
    """Return βa + (1 − β)θ; in round 1 the model itself."""
    beta = float(at.options["ema.beta"]) if at.round > 1 else 0.0
    return beta * at.average + (1 - beta) * at.model


def falling(done: float, options: Values) -> float:
    """Return the factor of η after the share ``done`` of the local steps."""
    return (1 - done) * float(options["swa.rate_start"]) + done * float(options["swa.rate_end"])


def server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return γ·mean + (1 − γ)θ_t."""
    return part_of_the_way(step, "swa.gamma"), {}


def controlled_server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return SCAFFOLD's model, and c ← c + γ_c · mean change."""
    change = step.sums["scaffold.change"] / step.participants
    c = step.state["scaffold.c"] + float(step.options["moswa.gamma"]) * change
    return part_of_the_way(step, "scaffold.gamma"), {"scaffold.c": c}


def rates(start: float | None, end: float | None) -> tuple[Option, Option]:
    """Return the options of the local rate, given their values in the published code."""
    return (
        Option("swa.rate_start", 1.0, "factor of η before a round's first step", code=start),
        Option("swa.rate_end", 0.0, "factor of η after a round's last step", code=end),
    )


SWA = Method(
    name="swa",
    objective="the mean of the server's models is kept",
    source="Izmailov et al. 2018 (UAI); in FL: Caldarola, Caputo, Ciccone 2022 (ECCV)",
    place="on the server, beside the model that is trained",
    flatness=True,
    options=(Option("swa.start", 1, "first round whose model counts", within=(1, 1_000_000)),),
    averages=running_mean,
)
EMA = Method(
    name="ema",
    objective="a moving average a ← βa + (1 − β)θ of the server's models is kept",
    source="Polyak, Juditsky 1992; Tarvainen, Valpola 2017 (NeurIPS)",
    place="on the server, beside the model that is trained",
    options=(Option("ema.beta", 0.9, "β of the average; 0: the model itself", within=(0.0, 1 - 1e-9)),),
    averages=moving_average,
)
FEDSWA = Method(
    name="fedswa",
    objective="ℓ(w), the local rate falling within a round; θ ← θ + γΔ",
    source="Liu et al. 2025 (ICML, arXiv 2507.20016); the authors' program",
    place="in the learning rate of a local step; on the server",
    flatness=True,
    options=(Option("swa.gamma", 1.0, "server learning rate γ (the program: 1)"), *rates(2.0, None)),
    local_rate=falling,
    server=server,
)
FEDMOSWA = replace(
    SCAFFOLD,
    name="fedmoswa",
    objective="ℓ(w) + ⟨w, c − c_k⟩, the local rate falling within a round; c ← c + γ_c mean change",
    source="Liu et al. 2025 (ICML, arXiv 2507.20016); the authors' program",
    place=f"{SCAFFOLD.place}; in the learning rate of a local step",
    flatness=True,
    options=(
        *SCAFFOLD.options,
        Option("moswa.gamma", 0.4, "weight γ_c of the round's mean change (the program: 0.4)"),
        *rates(None, 1.0),
    ),
    local_rate=falling,
    server=controlled_server,
)
