"""A Flower app whose rounds are registered: `python flower_app.py message REGISTRY`."""

import sys
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam
from flwr.simulation import run_simulation
from torch.nn.functional import cross_entropy

from fedscope.adoption.flower import watch
from fedscope.data.sets.dataset_catalogue import load, pipeline
from fedscope.models.catalogue import build

CLIENTS, ROUNDS = 3, 2


def network() -> torch.nn.Module:
    return build("mlp_digits", 10, 1, torch.Generator().manual_seed(0))


def trained(model: torch.nn.Module, client: int) -> int:
    """Take a few steps on every third sample; return how many samples those are."""
    split = load("digits").train
    rows = torch.arange(client, len(split), CLIENTS)
    inputs, labels = pipeline("digits")[1].test(split.images, rows), split.labels[rows]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    return len(rows)


client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    client = int(context.node_config["partition-id"])
    counts = {"num-examples": trained(model, client), "partition-id": client, "train_loss": 1.5}
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(counts)}
    return Message(content=RecordDict(content), reply_to=message)


server_app = ServerApp()


@server_app.main()
def serve(grid: Grid, _context: Context) -> None:
    strategy = watch(
        FedAdam(
            fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=CLIENTS, min_train_nodes=CLIENTS
        ),
        "message",
        model="mlp_digits",
        dataset="digits",
        registry=sys.argv[2],
        clients="all",
    )
    result = strategy.start(
        grid,
        ArrayRecord(network().state_dict()),
        num_rounds=ROUNDS,
        evaluate_fn=lambda round, _: MetricRecord({"accuracy": 0.25 * round, "loss": 2.0}),
    )
    torch.save(dict(result.arrays.to_torch_state_dict()), Path(sys.argv[2]) / "result.pt")


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        CLIENTS,
        backend_config={
            "init_args": {"num_cpus": 1, "log_to_driver": False, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
