"""Flower's client: a module of its own, which an actor process imports once, keeping data and network."""

import functools

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from shared import Work, network, read_work, train_locally
from torch import nn

app = ClientApp()


@functools.cache
def task(path: str) -> tuple[Work, nn.Module]:
    """Return the work and a network, loaded once per actor process."""
    work = read_work(path)
    return work, network(work)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train on the client's tensors from the weights in the message; the reply carries weights and counts."""
    work, model = task(message.content["config"]["work"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    client = context.node_config["partition-id"]
    inputs, labels = work.inputs[client], work.labels[client]
    steps = train_locally(model, inputs, labels, work.settings)
    counts = {"num-examples": len(labels), "steps": steps, "samples": work.settings["epochs"] * len(labels)}
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(counts)}
    return Message(content=RecordDict(content), reply_to=message)
