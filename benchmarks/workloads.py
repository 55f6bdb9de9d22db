"""What is measured: groups of contestants that do the same work.

A group's ``settings`` are fields of fedscope's ``Settings``: they make the command line of `fedscope train`
and the work file (data, partition, initial weights) that every other contestant reads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Contestant:
    """A script of ``contestants/`` with its options, and how many processes of how many threads it runs."""

    name: str
    script: str
    options: tuple[str, ...] = ()
    threads: int = 1  # OMP_NUM_THREADS of its processes
    launched: int = 1  # processes started by torchrun, for the script that wants that
    peer: bool = False  # runs under the interpreter that has the peers

    @property
    def ours(self) -> bool:
        """Whether it is fedscope."""
        return self.script == "fedscope_run.py"


@dataclass(frozen=True)
class Group:
    """Contestants that run one after the other, again and again, on the same work."""

    name: str
    title: str
    settings: Mapping[str, Any]
    contestants: tuple[Contestant, ...]


COMMON: dict[str, Any] = {
    "method": "fedavg",
    "augmentation": "none",
    "partition": "iid",
    "momentum": 0.0,
    "nesterov": False,
    "seed": 0,
    "save_clients": "none",
}
CONVNET = {"model": "convnet_cifar", "batch_size": 50, "lr": 0.1, "weight_decay": 1e-3}
RESNET = {
    "model": "resnet56_bottleneck",
    "batch_size": 64,
    "lr": 0.01,
    "momentum": 0.9,
    "nesterov": True,
    "weight_decay": 1e-4,
}
BARE_BATCHES = {"convnet_cifar": 10, "resnet56_bottleneck": 2}  # per client and round, two clients


def fedscope(name: str, workers: int, threads: int, precision: str = "fp32", *more: str) -> Contestant:
    """Return fedscope with W workers of T threads."""
    options = (f"--workers={workers}", f"--threads={threads}", f"--precision={precision}", *more)
    return Contestant(f"fedscope, {name}", "fedscope_run.py", options, threads)


def bare(model: Mapping[str, Any], precision: str, cores: int) -> Group:
    """Return the bare loop in both memory formats against fedscope on as many cores."""
    loops = [
        Contestant(
            f"bare loop, {layout}",
            "bare.py",
            (f"--precision={precision}", f"--memory-format={layout}", f"--threads={cores}"),
            cores,
        )
        for layout in ("default", "channels_last")
    ]
    ours = [fedscope(f"1 worker × {cores} thread{'s' if cores > 1 else ''}", 1, cores, precision)]
    if cores > 1:
        ours.append(fedscope(f"{cores} workers × 1 thread", cores, 1, precision))
    settings = {
        **COMMON,
        **model,
        "dataset": "cifar100",
        "train_samples": 2 * BARE_BATCHES[model["model"]] * model["batch_size"],
        "test_samples": 10,  # the bare loop evaluates nothing
        "clients": 2,
        "participation": 1.0,
        "rounds": 3,
        "epochs": 1,
    }
    name = f"bare/{model['model']}/{precision}/{cores}"
    title = f"Bare loop: {model['model']}, {precision}, {cores} core{'s'[: cores - 1]}"
    return Group(name, title, settings, (*loops, *ours))


def federated(own: int) -> tuple[Contestant, ...]:
    """Return the peers that run whole federated rounds; ``own`` threads for those of one process."""
    threads = (f"--threads={own}",)
    return (
        Contestant(f"plain loop, 1 × {own}", "plain.py", threads, own),
        Contestant(f"pfl, 1 × {own}", "pfl_peer.py", threads, own, peer=True),
        Contestant("pfl, 2 × 1", "pfl_peer.py", (), launched=2, peer=True),
        Contestant("Flower, 2 × 1", "flower_peer.py", peer=True),
    )


COMPUTE = Group(
    "compute",
    "Compute-bound: convnet_cifar on CIFAR-100",
    {
        **COMMON,
        **CONVNET,
        "dataset": "cifar100",
        "clients": 100,
        "participation": 0.1,
        "rounds": 2,
        "epochs": 5,
    },
    (*federated(2), fedscope("fp32, 2 × 1", 2, 1), fedscope("bf16, 2 × 1", 2, 1, "bf16")),
)
OVERHEAD = Group(
    "overhead",
    "Overhead-bound: 64-32-10 MLP on 8×8 images",
    {
        **COMMON,
        "dataset": "synthetic",
        "model": "mlp_digits",
        "train_samples": 18000,
        "test_samples": 360,
        "clients": 1000,
        "participation": 0.1,
        "rounds": 11,
        "epochs": 1,
        "batch_size": 18,
        "lr": 0.1,
        "weight_decay": 0.0,
    },
    (
        *federated(1),
        fedscope("one by one, 1 × 1", 1, 1, "fp32", "--stack=1"),
        fedscope("stacks of 100, 1 × 1", 1, 1, "fp32", "--stack=100"),
        fedscope("1 × 1", 1, 1),  # as it comes: --stack auto
        fedscope("2 × 1", 2, 1),
    ),
)
GROUPS = (
    *(
        bare(model, precision, cores)
        for model in (CONVNET, RESNET)
        for precision, cores in (("fp32", 1), ("fp32", 2), ("bf16", 1))
    ),
    COMPUTE,
    OVERHEAD,
)
TINY = {
    "bare": {"train_samples": 256, "rounds": 2},
    "compute": {"train_samples": 2000, "test_samples": 200, "clients": 20, "epochs": 1, "rounds": 2},
    "overhead": {"train_samples": 720, "clients": 40, "rounds": 3},
}


def tiny(group: Group) -> Group:
    """Return the group with seconds' worth of work: it tries the harness and its times mean nothing."""
    settings = {**group.settings, **TINY[group.name.split("/")[0]]}
    return replace(group, title=f"{group.title} (tiny)", settings=settings)
