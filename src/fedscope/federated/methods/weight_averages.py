"""SWA and EMA of the server's models, and FedSWA and FedMoSWA, which end each client's path at a small rate.

``swa`` and ``ema`` keep an average beside the model that clients train, for any method: the average is what
is evaluated and saved, the model goes on as if there were none. SWA is the mean of the models of rounds
``swa.start``, ``swa.start`` + c, … (Izmailov et al. 2018; on FedASAM: Caldarola et al. 2022, from 75 % of the
rounds on). With cycles of c > 1 rounds, the first of which ends in round ``swa.start``, η_t falls linearly in
each to ``swa.end``·η in the round that counts (Izmailov et al., Section 3.1); in Caldarola et al.'s program
the next round counts, the first of its cycle (``--reading code``). EMA: a ← βa + (1 − β)θ. Statistics of
BatchNorm are the trained model's.

FedSWA: within a round the local rate falls linearly from ``swa.rate_start``·η to ``swa.rate_end``·η over the
steps, and the server goes γ of the way to the mean. FedMoSWA: so do SCAFFOLD's clients, whose control
variates are means over the path by the mean rate, and c ← c + γ_c · (mean c_k − c) over the participants.
Liu et al. 2025, from the authors' program; what its FedMoSWA runs has a constant rate (``--reading code``),
and FedSWA doubles the rate. There the first round's c is the mean c_k whole, not γ_c of it.
"""

from dataclasses import replace

from torch import Tensor

from fedscope.federated.methods.control import SCAFFOLD, part_of_the_way, scaffold_finish
from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option, Values
from fedscope.federated.record.views import Averaging, Finish, ServerStep


def running_mean(at: Averaging) -> Tensor:
    """Return the mean of the models that count, one of each cycle; before them the model itself."""
    since, cycle = at.round - int(at.options["swa.start"]), int(at.options["swa.cycle"])
    if since <= 0:
        return at.model
    if since % cycle:
        return at.average
    return at.average + (at.model - at.average) / (since // cycle + 1)


def cycling(round: int, options: Values) -> float:
    """Return the factor of η_t: 1 before the first cycle, then falling to ``swa.end`` in each."""
    cycle, counted = int(options["swa.cycle"]), options["swa.lowest"] == "counted"
    done = round - int(options["swa.start"]) + cycle - counted
    if cycle == 1 or done < 0:
        return 1.0
    share = (done % cycle + 1) / cycle
    return (1 - share) + share * float(options["swa.end"])


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


def distance_from_c(end: Finish) -> dict[str, Tensor]:
    """Return c_k⁺ and c_k⁺ − c, as the server adds it up."""
    found = scaffold_finish(end)
    weight = end.relative_size if end.options["cv.steps"] == "nominal" else 1.0
    return {**found, "scaffold.change": weight * found["scaffold.c_k"] - end.received["scaffold.c"]}


def controlled_server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return SCAFFOLD's model, and c ← c + γ_c · (mean c_k⁺ − c)."""
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
    options=(
        Option("swa.start", 1, "first round whose model counts", within=(1, 1_000_000), rounds=True),
        Option("swa.cycle", 1, "rounds c of a cycle, of which one model counts", within=(1, 1_000_000)),
        Option(
            "swa.end",
            0.01,
            "factor of η_t that a cycle of c > 1 rounds falls to (the program: 0.01)",
            within=(1e-6, 1.0),
        ),
        Option(
            "swa.lowest",
            "counted",
            "the round of the lowest rate: the one that counts, or that before it",
            code="before",
            choices=("counted", "before"),
        ),
    ),
    averages=running_mean,
    round_rates=(cycling,),
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
    objective="ℓ(w) + ⟨w, c − c_k⟩, the local rate falling within a round; c ← c + γ_c (mean c_k⁺ − c)",
    source="Liu et al. 2025 (ICML, arXiv 2507.20016); the authors' program",
    place=f"{SCAFFOLD.place}; in the learning rate of a local step",
    flatness=True,
    options=(
        *SCAFFOLD.options,
        Option("moswa.gamma", 0.4, "share γ_c of the way from c to the mean c_k (the program: 0.4)"),
        *rates(None, 1.0),
    ),
    local_rate=falling,
    finish=(distance_from_c,),
    server=controlled_server,
)
