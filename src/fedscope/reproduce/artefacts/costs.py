"""Costs that need no run: of published networks and methods, by our count in the papers' conventions."""

from collections.abc import Mapping
from functools import cache

import torch
from torch import nn

from fedscope.data.sets import dataset_catalogue as data_catalogue
from fedscope.federated.client.state import ClientState
from fedscope.federated.costs.expected import expected_costs
from fedscope.federated.methods import parse
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.taps import tapped
from fedscope.federated.setup.paper_presets import preset
from fedscope.models import catalogue as model_catalogue
from fedscope.models.network_summary import summary
from fedscope.models.resnet import ResNet
from fedscope.records.entries import Record
from fedscope.reproduce.recipes.spec import Recipe
from fedscope.reproduce.recipes.table_quantities import Number

BYTES = 4  # of a number on the network


def static_number(name: str, column_preset: str, method: str) -> Number:
    """Return a method's multiply-accumulates or parameters on a preset's own network (FedAlign's Table 5)."""
    settings = preset(column_preset).settings
    base, *options = method.split()
    count = next((text.split("=")[1] for text in options if text.startswith("gradaug.n=")), "2")
    row = {"gradaug": f"gradaug n={count}", "mixup": "fedavg"}.get(base, base)
    cost = _costs(str(settings["model"]), str(settings["dataset"]))[row]
    macs, held = cost
    return Number({"macs": macs / 1e6, "macs_e8": macs / 1e8, "parameters": held / 1e6}[name], 0.0)


@cache
def _costs(network: str, dataset: str) -> Mapping[str, tuple[float, int]]:
    known = data_catalogue.record(dataset)
    plain = model_catalogue.outline(network, known.classes, known.channels)
    projected = model_catalogue.outline(network, known.classes, known.channels, head=True)
    assert isinstance(plain, ResNet)
    assert isinstance(projected, ResNet)
    found = expected_costs(plain, projected, known.channels, known.side)
    return {name: (cost.multiply_accumulates, cost.parameters_held) for name, cost in found.items()}


def cost_grid(recipe: Recipe) -> Record:
    """Return MAN's Table 3, evaluated layer by layer for one sample, with the totals of each network."""
    rows = []
    for network, data in recipe.models.items():
        record = model_catalogue.find(network)
        layers = _layers(network, record.classes, record.channels, record.side)
        without, term = sum(layer[1] for layer in layers), sum(layer[2] for layer in layers)
        counted = summary(
            model_catalogue.outline(network, record.classes, record.channels), record.channels, record.side
        ).multiply_accumulates
        if without != counted:
            raise AssertionError(f"{network}: {without} multiplications by the formula, {counted} counted")
        rows += [[f"{data}, {name}", f"{plain:,}", f"{own:,}", ""] for name, plain, own in layers]
        rows.append([f"{data}, all of {network}", f"{without:,}", f"{term:,}", f"{term / without:.2%}"])
    header = ["layer", "without the regulariser", "the regulariser alone", "more"]
    return {"header": header, "rows": rows}


def _layers(network: str, classes: int, channels: int, side: int) -> list[tuple[str, int, int]]:
    """Return (name, multiplications, those of the regulariser) of each convolution and linear layer.

    The regulariser squares the outputs of every layer but the last, whose outputs are the logits.
    """
    model = model_catalogue.outline(network, classes, channels).eval()
    counted = {n: layer for n, layer in model.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear)}
    with torch.no_grad(), tapped(model, list(counted)) as outputs:
        model(torch.zeros(1, channels, side, side, device="meta"))
    found = [(n, out.numel() * counted[n].weight[0].numel(), out.numel()) for n, out in outputs.items()]
    *hidden, (last, products, _) = found
    return [*hidden, (last, products, 0)]


SENT = {  # to a client, from a client, in the cross-device and the cross-silo setting
    "fedavg": ("w_{t−1}", "w_k", "w_{t−1}", "w_k"),
    "fedprox": ("w_{t−1}", "w_k", "w_{t−1}", "w_k"),
    "feddyn": ("w_{t−1}", "w_k", "w_{t−1}", "w_k"),
    "fedcurv": ("w_{t−1}, Σ F, Σ F w", "w_k, F_k, F_k w_k", "w_{t−1}, Σ F, Σ F w", "w_k, F_k, F_k w_k"),
    "fedfor": ("w_{t−1}, w_{t−2}", "w_k", "w_{t−1} − w_{t−2}", "w_k"),
}


def traffic_grid(recipe: Recipe) -> Record:
    """Return FedFOR's Table 1: the vectors sent, and their bytes by the trainer's own accounting."""
    rows = []
    for label, method in recipe.rows.items():
        down, up, silo_down, silo_up = SENT[method]
        memory = "stateful" if parse(method).memory else "stateless"
        sizes = [_traffic(method, network) for network in recipe.models]
        sent = [f"{megabytes(to)} / {megabytes(back)}" for to, back in sizes]
        silo = [f"{megabytes(to if method != 'fedfor' else back)} / {megabytes(back)}" for to, back in sizes]
        rows.append([label, "cross-device", memory, down, up, *sent])
        rows.append([label, "cross-silo", memory, silo_down, silo_up, *silo])
    names = [f"MB down / up, {network} ({data})" for network, data in recipe.models.items()]
    header = ["method", "setting", "clients are", "to a client", "from a client", *names]
    return {"header": header, "rows": rows, "text_columns": 5}


def megabytes(size: int) -> str:
    return f"{size / 1e6:.3f}"


def _traffic(method: str, network: str) -> tuple[int, int]:
    found = parse(method)
    record = model_catalogue.find(network)
    model = FlatModel(model_catalogue.outline(network, record.classes, record.channels))  # shapes alone
    clients = ClientState(model, found, found.values({}, "paper"))
    size = model.values.shape[1] - len(clients.personal)
    down, up = (size + clients.further(layout) for layout in (clients.broadcast, clients.uploads))
    return BYTES * down, BYTES * up
