"""SCAFFOLD and FedDC: control variates correct each local gradient by the federation's.

SCAFFOLD: ℓ(w) + ⟨w, c − c_k⟩; after training (option II) c_k ← c_k − c + (θ_t − w_k)/(τ_k η_t), and the
server moves by γ times the uniform mean displacement, c by the sum of the changes over N. With the clip off
c_k is the mean of the raw gradients along the path. FedDyn's published code (``cv.steps=nominal``) lets every
client take E·⌈(n/N)/B⌉ steps, whatever its size s_k = n_k·N/n, puts c/s_k into the loss, and weights the
change of c_k by s_k.

FedDC: ℓ(w) + (α_k/2)‖w + h_k − θ_t‖² + ⟨w, g/s_k − g_k⟩, α_k = α/s_k, h_k the drift so far; after training
h_k ← h_k + (w_k − θ_t), g_k ← g_k − g/s_k + (θ_t − w_k)/(τ_k η_t), g by the sum of s_k times the changes over
N; the server adds the mean of h_k over all clients, as FedDyn. Its published code takes E epochs, and divides
by E·⌈(n/N)/B⌉ for all. Both codes divide by the first round's learning rate (``cv.lr=initial``).

Momentum moves a client further than τη times its mean gradient: then τ is replaced by FedNova's a_k, the sum
of the weights that the gradients have in the path, and c_k and g_k are their weighted mean. The two codes
have no momentum.
"""

import torch
from torch import Tensor

from fedscope.federated.methods.dynamic import FROM_UPLOADS, UNIFORM
from fedscope.federated.methods.normalized import reach
from fedscope.federated.record.method import Method, Required
from fedscope.federated.record.options import Option
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Finish, LocalStep, ServerStep, Stack, Term


def mean_gradient(end: Finish) -> Tensor:
    """Return (θ_t − w_k)/(aη), (K, P): the mean gradient along the local path."""
    lr = end.lr if end.options["cv.lr"] == "current" else end.initial_lr
    return (end.anchor - end.parameters) / max(_reach(end) * lr, 1e-30)  # at rate 0 nothing has moved


def _reach(end: Finish) -> float:
    """Return a: how often the path counts its mean gradient; without momentum the number of steps."""
    steps = end.steps if end.options["cv.steps"] == "actual" else end.nominal_steps
    return reach(steps, end.momentum, end.nesterov)


def _correction(step: LocalStep) -> Tensor:
    """Return c − c_k, or as the published code c/s_k − c_k, in the shape of the parameters."""
    c = step.received["scaffold.c"]
    if step.options["cv.steps"] == "nominal":
        c = c / step.relative_size
    return c - step.memory["scaffold.c_k"]


def control(step: Term) -> Tensor:
    """Return ⟨w, c − c_k⟩, a scalar; 0 where it enters after the step."""
    inside = float(step.options["scaffold.apply"] == "loss")
    return inside * (step.parameters * _correction(step)).sum()


def control_after(step: Stack) -> Tensor:
    """Return c − c_k, (K, P), where it enters after the step; else 0."""
    outside = float(step.options["scaffold.apply"] == "after_step")
    return outside * _correction(step)


def scaffold_finish(end: Finish) -> dict[str, Tensor]:
    """Return c_k⁺ and its change, as the server adds it up."""
    old, options = end.memory["scaffold.c_k"], end.options
    if options["scaffold.option"] == "I":
        new = torch.stack([_gradient_at_anchor(end, row) for row in range(len(old))])
    else:  # what enters after the step is moved along once a step, with momentum or without
        counted = end.steps / _reach(end) if options["scaffold.apply"] == "after_step" else 1.0
        new = counted * (old - end.received["scaffold.c"]) + mean_gradient(end)
    weight = end.relative_size if options["cv.steps"] == "nominal" else 1.0
    return {"scaffold.c_k": new, "scaffold.change": weight * (new - old)}


def _gradient_at_anchor(end: Finish, row: int) -> Tensor:
    """Return the client's mean gradient at θ_t, over its data without augmentation, (P,)."""
    client, total = end.client(row), torch.zeros_like(end.parameters[row])
    for images, labels in client.batches(end.batch_size):
        total += end.network.gradient(end.start[row], images, labels)
    return total / len(client.labels)


def scaffold_server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return γ·mean + (1 − γ)θ_t, moved by what was sent beyond the server's own model; and c."""
    c = step.state["scaffold.c"] + step.sums["scaffold.change"] / step.clients
    return part_of_the_way(step, "scaffold.gamma"), {"scaffold.c": c}


def part_of_the_way(step: ServerStep, option: str) -> Tensor:
    """Return γ·mean + (1 − γ)θ_t, γ the value of ``option``; for γ = 1 the mean, bit for bit."""
    gamma = float(step.options[option])
    return step.onto_kept(gamma * step.mean + (1 - gamma) * step.anchor)


def drift(step: Term) -> Tensor:
    """Return (α_k/2)‖w + h_k − θ_t‖² + ⟨w, g/s_k − g_k⟩, a scalar."""
    w, alpha = step.parameters, float(step.options["dc.alpha"]) / step.relative_size
    tie = (w + step.memory["dc.h"] - step.anchor).square().sum()
    tilt = w * (step.received["dc.g"] / step.relative_size - step.memory["dc.g_k"])
    return 0.5 * alpha * tie + tilt.sum()


def drift_finish(end: Finish) -> dict[str, Tensor]:
    """Return h_k⁺, g_k⁺, and s_k times the change of g_k."""
    change = mean_gradient(end) - end.received["dc.g"] / end.relative_size
    return {
        "dc.h": end.memory["dc.h"] + (end.parameters - end.anchor),
        "dc.g_k": end.memory["dc.g_k"] + change,
        "dc.change": change * end.relative_size,
    }


def drift_server(step: ServerStep) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the mean of the uploads plus the mean h over all clients; that mean, and g."""
    h = step.state["dc.h"] + (step.participants / step.clients) * (step.mean - step.anchor)
    return step.mean + h, {"dc.h": h, "dc.g": step.state["dc.g"] + step.sums["dc.change"] / step.clients}


RATE = Option(
    "cv.lr", "current", "learning rate in the memory: this round's, or the first's",
    code="initial", choices=("current", "initial"),
)  # fmt: skip


def steps_option(help: str) -> Option:
    """Return the option that says which number of steps counts."""
    return Option("cv.steps", "actual", help, code="nominal", choices=("actual", "nominal"))


REQUIRED = (
    UNIFORM,
    Required("optimizer_state", "round", "its control variates count momentum from zero in every round"),
)
ALL_ALIKE = Required(
    "stragglers", 0.0, "E·⌈(n/N)/B⌉ is then everyone's number of steps", unless=("cv.steps", "actual")
)
FROM_PATH = "its control variates are mean gradients read off the path of SGD"
SCAFFOLD = Method(
    name="scaffold",
    objective="ℓ(w) + ⟨w, c − c_k⟩",
    source="Karimireddy et al. 2020 (ICML), Algorithm 1",
    place="in the loss, inside the clip",
    options=(
        Option("scaffold.gamma", 1.0, "server learning rate γ"),
        Option(
            "scaffold.apply", "loss", "in the loss, or after the optimizer's step (NIID-Bench)",
            choices=("loss", "after_step"),
        ),
        Option(
            "scaffold.option", "II", "c_k from the path, or the gradient at θ_t by a pass over the data",
            choices=("II", "I"),
        ),
        RATE,
        steps_option("each client's E epochs, or E·⌈(n/N)/B⌉ steps by all, c/s_k and c_k's change times s_k"),
    ),
    equal_steps=lambda options: options["cv.steps"] == "nominal",
    parameter_terms=(control,),
    after_momentum=(control_after,),
    memory=(Vector("scaffold.c_k"),),
    uploads=(Vector("scaffold.change"),),
    finish=(scaffold_finish,),
    server=scaffold_server,
    server_state=(Vector("scaffold.c"),),
    broadcast=("scaffold.c",),
    weights="uniform",
    required_settings=(
        *REQUIRED, ALL_ALIKE, Required("optimizer", "sgd", FROM_PATH, unless=("scaffold.option", "I")),
    ),
)  # fmt: skip
FEDDC = Method(
    name="feddc",
    objective="ℓ(w) + (α_k/2)‖w + h_k − θ_t‖² + ⟨w, g/s_k − g_k⟩",
    source="Gao et al. 2022 (CVPR), Algorithm 1",
    place="in the loss, inside the clip",
    options=(
        Option("dc.alpha", 0.01, "strength α (Yashwanth et al. 2024's code: 0.01)"),
        RATE,
        steps_option("steps in the memory: τ_k, or E·⌈(n/N)/B⌉ for all"),
    ),
    parameter_terms=(drift,),
    memory=(Vector("dc.h"), Vector("dc.g_k")),
    uploads=(Vector("dc.change"),),
    finish=(drift_finish,),
    server=drift_server,
    only_keeps=FROM_UPLOADS,
    server_state=(Vector("dc.h"), Vector("dc.g")),
    broadcast=("dc.g",),
    weights="uniform",
    required_settings=(*REQUIRED, ALL_ALIKE, Required("optimizer", "sgd", FROM_PATH)),
)
