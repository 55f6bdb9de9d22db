"""FedCurv: what mattered to the others in the last round is held by elastic weight consolidation.

ℓ(w) + λ Σ_{j ∈ S_{t−1}, j ≠ k} Σ_i F_{j,i} (w_i − w_{j,i})², F_j the diagonal of client j's Fisher
information at the end of its training. With u = Σ_j F_j, v = Σ_j F_j ⊙ w_j this is λ(⟨u, w²⟩ − 2⟨v, w⟩) and a
constant: the server broadcasts u and v over its last participants, and one of them subtracts its own part.
F_j is the mean over the client's samples, without augmentation and in eval mode, of the squared gradient of
log p(y|x), y the data's label (``fisher=empirical``) or drawn from the model. Shoham et al. 2019.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option
from fedscope.federated.record.tasks import Client
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Finish, ServerStep, Term
from fedscope.task_loss import IGNORED


def consolidation(step: Term) -> Tensor:
    """Return λ(⟨u, w²⟩ − 2⟨v, w⟩) over the other clients, a scalar; half of it under ``fedcurv.half``."""
    own = step.took_part_last_round if step.options["fedcurv.exclude_self"] else 0.0
    u, v = (
        step.received[f"curv.{sum_}"] - own * step.memory[f"curv.{mine}"]
        for sum_, mine in (("u", "F"), ("v", "Fw"))
    )
    w, half = step.parameters, 0.5 if step.options["fedcurv.half"] else 1.0
    return half * float(step.options["fedcurv.lambda"]) * ((u * w.square()).sum() - 2 * (v * w).sum())


def fisher(end: Finish, row: int) -> Tensor:
    """Return the diagonal of the client's Fisher information at w_k, (P,)."""
    network, client, model = end.network, end.client(row), end.values[row]
    if end.options["fisher"] == "model":
        client = replace(client, labels=_drawn(end, client, model))
    total = torch.zeros_like(end.parameters[row])
    if end.options["fisher.batch"]:
        for images, labels in client.batches(end.batch_size):
            total += network.gradient(model, images, labels).square() / len(labels)
    else:
        for images, labels in client.batches(network.chunk):
            for gradients in network.gradients(model, images, labels):
                total += gradients.square().sum(0)
    return total / len(client.labels)


def _drawn(end: Finish, client: Client, model: Tensor) -> Tensor:
    """Return the client's labels, (n_k,) or of tokens (n_k, T), drawn from the network's own prediction."""
    logits = [
        end.network.at(model, lambda module, inputs: module(inputs), images)
        for images, _ in client.batches(end.batch_size)
    ]
    chance = torch.cat(logits).softmax(-1).flatten(0, -2).cpu()
    drawn = torch.multinomial(chance, 1, generator=client.random("fisher")).to(client.labels.device)
    return torch.where(client.labels == IGNORED, IGNORED, drawn.view_as(client.labels))


def finish(end: Finish) -> dict[str, Tensor]:
    """Return F_k and F_k ⊙ w_k."""
    diagonal = torch.stack([fisher(end, row) for row in range(len(end.parameters))])
    return {"curv.F": diagonal, "curv.Fw": diagonal * end.parameters}


def observe(step: ServerStep) -> dict[str, Tensor]:
    """Return u and v over this round's participants."""
    return {"curv.u": step.sums["curv.F"], "curv.v": step.sums["curv.Fw"]}


FEDCURV = Method(
    name="fedcurv",
    objective="ℓ(w) + λ Σ_{j≠k} ⟨F_j, (w − w_j)²⟩",
    source="Shoham et al. 2019 (arXiv 1910.07796)",
    place="in the loss, inside the clip; one more pass over the data after training",
    options=(
        Option("fedcurv.lambda", 1.0, "strength λ (provisional: no source gives one; sweep 0.01 to 10)"),
        Option("fedcurv.half", False, "multiply by ½"),
        Option("fedcurv.exclude_self", True, "leave the client's own Fisher information out"),
        Option(
            "fisher",
            "empirical",
            "labels: the data's, or drawn from the model",
            choices=("empirical", "model"),
        ),
        Option("fisher.batch", False, "square the gradients of mini-batches, not of samples"),
    ),
    parameter_terms=(consolidation,),
    memory=(Vector("curv.F"), Vector("curv.Fw")),
    uploads=(Vector("curv.F"), Vector("curv.Fw")),
    finish=(finish,),
    server_notes=(observe,),
    server_state=(Vector("curv.u"), Vector("curv.v")),
    broadcast=("curv.u", "curv.v"),
)  # fmt: skip
