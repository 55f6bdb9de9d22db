"""FedACG's program: its trainer with a client and a server class, and the terms that its clients know."""

import queue
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from problem import Featured, Problem, State, plain
from torch import Tensor

SERVERS = {"fedacg": "ServerM"}


class Arguments(dict[str, Any]):
    """The program's configuration, read as items and as attributes."""

    __getattr__ = dict.__getitem__


class Network(Featured):
    """The problem's network as the program calls it."""

    num_layers = 0

    def forward(self, images: Tensor) -> Any:
        """Return logits and features by the program's names."""
        logits, features = super().forward(images)
        return {"logit": logits, "feature": features}


def run(problem: Problem, entry: str) -> list[State]:
    """Run the method ``entry``."""
    states: list[State] = []
    client, server, trainer = (
        import_module(name) for name in ("clients.base_client", "servers.base", "trainers.base_trainer")
    )
    _replace(problem, client, trainer)
    args = arguments(problem, entry)
    made: Any = trainer.Trainer(
        Network(problem.network()), client.Client, getattr(server, SERVERS.get(entry, "Server"))(args),
        lambda **_: None, {"train": None, "test": [0]}, "cpu", args,
    )  # fmt: skip
    made.save_model = lambda **_: None
    made.wandb_log = lambda *_, **__: states.append(plain(made.model.state_dict()))
    made.train()
    return states


def arguments(problem: Problem, entry: str) -> Arguments:
    """Return the program's configuration for the problem's settings and options."""
    settings = problem.settings
    terms = Arguments(ce_loss=Arguments(weight=1))
    if entry == "fedacg":
        terms["prox_loss"] = Arguments(weight=problem.option("acg.beta"))
    if entry == "fedlc":
        terms = Arguments(ce_loss=Arguments(weight=0), LC=Arguments(weight=1, tau=problem.option("lc.tau")))
    if entry == "feddecorr":
        terms["decorr_loss"] = Arguments(weight=problem.option("decorr.beta"))
    server = Arguments(momentum=-1)
    if entry == "fedacg":
        server = Arguments(momentum=problem.option("acg.lambda"), FedACG=True)
    return Arguments(
        checkpoint_path=".", exp_name="", num_workers=0, pin_memory=False, multiprocessing=False,
        use_amp=False, save_freq=0, wandb=False, batch_size=settings.batch_size, client=terms, server=server,
        split=Arguments(mode=""), eval=Arguments(freq=0), evaler=Arguments(batch_size=1),
        dataset=Arguments(name="", num_instances=0),
        optimizer=Arguments(momentum=settings.momentum, wd=settings.weight_decay),
        trainer=Arguments(
            num_clients=settings.clients, participation_rate=settings.participation,
            global_rounds=settings.rounds, local_epochs=settings.epochs, local_lr=settings.lr,
            local_lr_decay=settings.lr_decay, global_lr=1.0,
        ),
    )  # fmt: skip


def _replace(problem: Problem, client: Any, trainer: Any) -> None:
    """Put the problem's data, participants and batches in the place of the program's."""

    def samples(_: Any, idxs: int, **__: Any) -> Any:
        found = problem.loader(idxs).dataset
        labels = problem.clients[idxs][1].tolist()
        found.client = idxs  # type: ignore[attr-defined]
        found.class_dict = {label: labels.count(label) for label in labels}  # type: ignore[attr-defined]
        found.dataset = SimpleNamespace(classes=range(10))  # type: ignore[attr-defined]
        return found

    def loader(dataset: Any, **_: Any) -> Any:
        made = problem.loader(dataset.client)
        made.dataset = dataset
        return made

    sampled = iter(problem.participants)
    client.DataLoader = loader
    trainer.DataLoader = lambda *_, **__: None
    trainer.DatasetSplitSubset = trainer.DatasetSplit = samples
    trainer.get_dataset = lambda *_, **__: list(range(problem.settings.clients))
    trainer.mp = SimpleNamespace(Manager=lambda: SimpleNamespace(Queue=queue.Queue), Queue=queue.Queue)
    trainer.np = SimpleNamespace(
        random=SimpleNamespace(choice=lambda *_, **__: next(sampled)), mean=lambda _: 0
    )
