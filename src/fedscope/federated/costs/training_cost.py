"""The cost of a method's training step for a client, in the convention of FedAlign's Tables 5 and 7."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.client.state import ClientState
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.method import Method
from fedscope.federated.record.views import Batch
from fedscope.federated.setup.federation import Federation, local_settings
from fedscope.models.network_cost import multiply_accumulates, norm_affine, parameter_count
from fedscope.streams import torch_stream

SAMPLES = 2  # of a counted batch


@dataclass(frozen=True)
class ClientCost:
    """Per client: multiply-accumulates of one step's forward passes per sample, scalars held, gradients."""

    multiply_accumulates: float
    parameters_held: int  # in all models a client holds, normalisation's affine parameters excluded
    gradients: int  # of the task loss, per step


def cost(federation: Federation, draws: int = 32) -> ClientCost:
    """Count the operations of one training step of the federation's method; its model is not changed.

    Convolutions, linear layers and the global average pool of every network that a step runs (Mendieta et
    al. 2022, Tables 5 and 7); random choices are averaged over ``draws`` steps.
    """
    method, settings = federation.method, federation.settings
    kept = {name: tensor.clone() for name, tensor in federation.model.state_dict().items()}
    held = parameter_count(federation.model) - norm_affine(federation.model)
    model = FlatModel(federation.model)
    objective = LocalTrainer(
        model, federation.dataset.train, federation.pipeline, method, settings.options,
        local_settings(settings, federation.weights), classes=len(federation.dataset.classes),
    ).objective  # fmt: skip
    rows = federation.rows[0][:SAMPLES]
    batch = Batch(
        federation.pipeline.test(federation.dataset.train.images, rows), federation.dataset.train.wanted[rows]
    )
    random = {name: torch_stream(settings.seed, f"cost of {name}") for name in method.draws}
    asked = points(method, objective.clients)

    def step(ascent: bool) -> object:
        return objective.task(batch, objective.draw(batch.images, random), ascent=ascent)

    repeats = draws if method.draws else 1
    model.module.train()
    with objective.tapping():
        total = sum(multiply_accumulates(partial(step, ascent)) for _ in range(repeats) for ascent in asked)
    model.load(kept)
    return ClientCost(total / (repeats * SAMPLES), held * method.models_held(), len(asked))


def points(method: Method, clients: ClientState) -> list[bool]:
    """Return for each gradient of a step whether it is that of ``ascent_loss``, else of the task loss."""
    asked: list[bool] = []

    def gradient(w: Tensor, *, keep_buffers: bool = False, ascent: bool = False) -> Tensor:
        asked.append(ascent)
        return torch.ones_like(w)

    if method.gradient_at is None:
        return [False]
    method.gradient_at(gradient, clients.stack(1, first_of_epoch=False))
    return asked


def gradients_per_step(method: Method) -> int:
    clients = ClientState(FlatModel(nn.Linear(1, 1)), method, method.values({}, "paper"), classes=2)
    return len(points(method, clients))
