"""A Hessian–vector product by forward over reverse beside ours, reverse over reverse: seconds and memory.

    python benchmarks/forward_mode.py --json FILE [--threads N] [--data-dir DIR]

``kept`` keeps the graphs of the gradients between products, ``anew`` has room for one and builds it for each
product, ``forward`` differentiates the gradient in forward mode (``torch.func``) and keeps nothing. Each is a
process of its own on generated samples; seconds are the median of four products after one that is not
counted, the peak is the process' largest resident size above that before the first product; for ``anew`` one
product's graph was there before, and the peak is left out.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import machine
import torch
from plan import HERE, child
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp

from fedscope.landscape import Batches, Hessian
from fedscope.models import catalogue
from fedscope.models.pretrained import networks

WAYS = ("kept", "anew", "forward")
NETWORKS = {"convnet_cifar": (256, 128), "resnet20": (256, 128), "hf:vit": (16, 8), "hf:base": (2, 1)}
"""Network ↦ samples, and those of a batch; the last two are as ``large_jobs.py`` makes them."""
Loss = Callable[[Tensor, Tensor], Tensor]


def problem(name: str) -> tuple[nn.Module, Batches, Loss]:
    """Return a network with samples and its loss."""
    samples, batch = NETWORKS[name]
    torch.manual_seed(0)
    own = name.startswith("hf:")
    model = networks.load(name) if own else catalogue.build(name, 100, 3, torch.Generator().manual_seed(0))
    if name == "hf:base":
        tokens = torch.randint(50257, (samples, 256))
        return model, Batches(tokens, tokens.roll(-1, 1), batch), _of_tokens
    images, labels = torch.randn(samples, 3, 32, 32), torch.randint(100, (samples,))
    return model.eval(), Batches(images, labels, batch), nn.functional.cross_entropy


def _of_tokens(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def forward(model: nn.Module, batches: Batches, loss: Loss, v: Tensor) -> Tensor:
    """Return H v by a derivative of the gradient in forward mode."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    pieces = v.split([w.numel() for w in weights.values()])
    along = {name: piece.view_as(weights[name]) for name, piece in zip(weights, pieces, strict=True)}
    total = torch.zeros_like(v)
    for inputs, targets in batches:

        def of(w: dict[str, Tensor], x: Any = inputs, y: Any = targets) -> Tensor:
            return loss(functional_call(model, w, (x,)), y)

        found: Any = jvp(grad(of), (weights,), (along,))[1]
        total += torch.cat([found[name].reshape(-1) for name in weights]) / len(batches)
    return total


def measure(name: str, way: str, threads: int) -> None:
    """Print the seconds of a product, the memory it takes, and the norm of what it gives."""
    torch.set_num_threads(threads)
    model, batches, loss = problem(name)
    v = torch.randn(sum(p.numel() for p in model.parameters()))
    memory = Hessian(model, loss, batches).plan.size if way == "anew" else None
    operator = None if way == "forward" else Hessian(model, loss, batches, memory=memory)
    before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, list[float]()
    for _ in range(5):
        begun = time.perf_counter()
        found = operator.product(v).vector if operator else forward(model, batches, loss, v)
        seconds.append(time.perf_counter() - begun)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    one = {"seconds": median(seconds[1:]), "norm": float(found.double().norm())}
    print(json.dumps(one if way == "anew" else {**one, "peak": peak}))


def main() -> None:
    """Measure every way of every network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, default=Path("forward_mode.json"))
    parser.add_argument("--threads", default="1")
    parser.add_argument("--data-dir", type=Path, help="with CIFAR-100")
    given = parser.parse_args()
    found: dict[str, dict[str, Any]] = {name: {} for name in NETWORKS}
    images = [str(given.data_dir.resolve())] if given.data_dir else []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, ways in found.items():
            if name.startswith("hf:"):
                made = ["vit", ".", *images] if name == "hf:vit" else ["gpt2", "."]
                child([str(HERE / "large_jobs.py"), *made], folder)
            for way in WAYS:
                script = [str(HERE / "forward_mode.py"), "--of", name, way, given.threads]
                child(script, folder, said=folder / "said")
                lines = (folder / "said").read_text().splitlines()
                ways[way] = json.loads(next(line for line in lines if line.startswith("{")))
                print(name, way, ways[way], flush=True)
    record = {
        "schema": "fedscope/benchmark-forward-mode/1",
        "machine": machine.record(None),
        "threads": int(given.threads),
        "networks": found,
    }
    given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--of"]:
        measure(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main()
