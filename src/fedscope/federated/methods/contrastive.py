"""MOON: a client's features stay near the global model's and away from its own last ones.

μ · mean_i −log( e^{sim(z_i, z_i^glob)/τ} / (e^{sim(z_i, z_i^glob)/τ} + e^{sim(z_i, z_i^prev)/τ}) ), sim the
cosine, z what the classifier reads: the projection head's output, or the features where the network has no
head. z^glob comes from the model the client received, z^prev from its own at the end of its last round;
both networks are constants. The client keeps that model; nothing more is sent. FedAlign's published code
runs the two in train mode (``moon.aux_mode``). ``moon.first`` says what z^prev is before a client's first
round: the run's initial model, a random one of its own, none, which leaves the term out, or the model it has
received. That is what FedAlign's code comes to: it means the initial model, but its list of previous models
holds the server's own tensors, which move on with the server (as long as these stay on one device).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy

from fedscope.federated.record.method import Method
from fedscope.federated.record.options import Option
from fedscope.federated.record.taps import classifier_input, tapped
from fedscope.federated.record.vectors import Vector
from fedscope.federated.record.views import Pass


def features(model: nn.Module, images: Tensor) -> Tensor:
    """Return what the classifier of ``model`` reads, (B, features)."""
    name = classifier_input(model)
    with tapped(model, [name]) as found:
        model(images)
    return found[name]


def contrast(z: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """Return the mean of −log(e^{sim(z, near)/τ} / (e^{sim(z, near)/τ} + e^{sim(z, far)/τ})) over rows."""
    similar = torch.stack([cosine_similarity(z, near), cosine_similarity(z, far)], 1)
    return cross_entropy(similar / temperature, torch.zeros(len(z), dtype=torch.int64, device=z.device))


def contrastive(at: Pass) -> Tensor:
    """Return the term, a scalar."""
    train = at.options["moon.aux_mode"] == "train"
    previous = at.memory["moon.previous"]
    if at.options["moon.first"] == "received":
        previous = torch.where(at.took_part_before > 0, previous, at.start)
    near, far = (
        at.network.at(model, features, at.batch.images, train=train) for model in (at.start, previous)
    )
    term = contrast(at.taps["moon"][0], near, far, float(at.options["moon.tau"]))
    present = at.took_part_before if at.options["moon.first"] == "skip" else 1.0
    return float(at.options["moon.mu"]) * present * term


MOON = Method(
    name="moon",
    objective="ℓ(w) + μ mean_i −log(e^{sim(z,z_glob)/τ} / (e^{sim(z,z_glob)/τ} + e^{sim(z,z_prev)/τ}))",
    source="Li, He, Song 2021 (CVPR), Algorithm 1",
    place="in the task loss, by two more forward passes without gradient",
    options=(
        Option("moon.mu", 1.0, "strength μ (Mendieta et al. 2022: 1)"),
        Option("moon.tau", 0.5, "temperature τ", within=(1e-3, float("inf"))),
        Option(
            "moon.aux_mode", "eval", "normalisation of the two constant networks",
            code="train", choices=("eval", "train"),
        ),
        Option(
            "moon.first", "init", "previous model of a client that has none: the run's initial model, a "
            "random one, the model it received, or leave the term out",
            code="received", choices=("init", "random", "received", "skip"),
        ),
    ),
    network_needs=(lambda _: {"head": True},),
    taps={"moon": lambda model, _: [classifier_input(model)]},
    task_terms=(contrastive,),
    memory=(Vector("moon.previous", "model", start="own"),),
    random_start=lambda options: options["moon.first"] == "random",
    finish=(lambda end: {"moon.previous": end.values},),
    reads_received=True,
    subnetworks=True,
)  # fmt: skip
