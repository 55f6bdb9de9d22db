"""λ_max of one language model's Hessian, for ``largest.py``: the network, its samples, and the search.

GPT-2's architecture (Radford et al. 2019) with random weights takes some steps of SGD on random tokens. A
Krylov basis that is restarted certifies no further, so that one must hold all steps: it is where at least
``ROWS`` rows fit, on the GPU or in the host's memory.
"""

import argparse
import json
import resource
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedscope import Hessian, LambdaOperator, top_eigenpairs

SIZES = {  # layers, width, heads; the model of 1.0 billion lies between two of the paper's
    "124M": (12, 768, 12), "355M": (24, 1024, 16), "774M": (36, 1280, 20), "1.0B": (36, 1472, 23),
    "1.5B": (48, 1600, 25), "tiny": (2, 32, 2), "tiny-host": (2, 48, 2),
}  # fmt: skip
BASES = ("device", "host")
TOL, WORDS, LENGTH = 1e-2, 50257, 128
ROWS, MOST_ROWS = 24, 40
# Bytes a parameter without basis and graphs: on the device, for a sum over several graphs, on the host.
BESIDE, SUM, HOST_BESIDE = 28, 8, 20
GB = 10**9


class Spent(Exception):
    """The time is spent."""


class Logits(nn.Module):
    """A language model's logits, as a tensor."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, tokens: Tensor) -> Tensor:
        """Return them, (sequences, tokens, words)."""
        logits: Tensor = self.net(input_ids=tokens, use_cache=False).logits
        return logits


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the mean cross-entropy of every token but the first."""
    return F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


def trained(size: tuple[int, int, int], words: int, tokens: Tensor, steps: int, rate: float) -> nn.Module:
    """Return a network after some steps of SGD, on the tokens' device."""
    from transformers import GPT2Config, GPT2LMHeadModel

    layers, width, heads = size
    still = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(
        vocab_size=words, n_layer=layers, n_embd=width, n_head=heads, bos_token_id=0, eos_token_id=0,
        attn_implementation="eager", **still,
    )  # fmt: skip
    torch.manual_seed(0)
    with tokens.device:
        model = Logits(GPT2LMHeadModel(config)).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        next_token_loss(model(tokens), tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def planned(n: int, sequences: int, basis: str, memory: int, host: int) -> tuple[str, int, int]:
    """Return the kind of basis, its rows, and the bytes that graphs may take on the device."""
    free = memory - (BESIDE + (SUM if sequences > 1 else 0)) * n
    room = {"device": free - 4 * n - 3 * GB, "host": host - HOST_BESIDE * n}  # the first beside one graph
    for kind in BASES if basis == "auto" else (basis,):
        rows = min(MOST_ROWS, room[kind] // (4 * n) - 1)
        if rows >= (ROWS if basis == "auto" else 3):
            return kind, rows, free - (kind == "device") * 4 * n * (rows + 1)
    raise SystemExit(f"{ROWS} rows of {n:,} numbers fit neither {memory / GB:.0f} nor {host / GB:.0f} GB")


def measured(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return what is found of one size; options as of ``largest.py``."""
    device, tiny = torch.device(given.device), name.startswith("tiny")
    words, begun = 500 if tiny else WORDS, time.perf_counter()
    drawn = torch.randint(words, (given.sequences, LENGTH), generator=torch.Generator().manual_seed(0))
    tokens = drawn.to(device)
    model = trained(SIZES[name], words, tokens, given.steps, given.rate)
    n = sum(parameter.numel() for parameter in model.parameters())
    basis = "host" if name == "tiny-host" else given.basis
    limits = int(given.memory * GB), int(given.host_memory * GB)
    kind, rows, graphs = planned(n, given.sequences, basis, *limits)
    H = Hessian(model, next_token_loss, [(tokens, tokens)], memory=max(0, graphs))
    del model  # the operator has its own copy
    known: dict[str, Any] = {"parameters": n, "basis": kind, "rows": rows}
    known |= {"sequences": given.sequences, "setup_seconds": time.perf_counter() - begun}
    if device.type == "cuda":
        known["device"] = torch.cuda.get_device_name(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    search(H, kind, rows, given.seconds, known)
    if device.type == "cuda":
        known["device_peak"] = torch.cuda.max_memory_allocated(device)
        known["device_reserved"] = torch.cuda.max_memory_reserved(device)
    known["host_peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return known


def search(H: Hessian, kind: str, rows: int, limit: float, known: dict[str, Any]) -> None:
    """Add to ``known`` what the search finds and what ended it, after ``limit`` seconds at the latest."""
    n, begun = H.shape[0], time.perf_counter()
    place = H.device if kind.startswith("device") else torch.device("cpu")
    moved = LambdaOperator(lambda v: H.matvec(v.to(H.device)).to(place), n, H.dtype)
    known |= {"certified": False, "seconds_at": []}  # after each product

    def tell(products: int, total: int | None, text: str) -> None:
        seconds = round(time.perf_counter() - begun, 2)
        known["seconds_at"].append(seconds)
        known.update(products=products, text=text, seconds=seconds)
        if seconds > limit:
            raise Spent

    try:
        known["plan"] = str(H.plan)  # what it takes a look for is free again before there is a basis
        found = top_eigenpairs(
            H if place == H.device else moved, tol=TOL, by_sample=False, max_basis=rows, max_matvecs=rows,
            progress=tell,
            generator=torch.Generator(place).manual_seed(0),
        )  # fmt: skip
        value, residual = float(found.values[0]), float(found.residuals[0])
        known |= {"lambda_max": value, "residual": residual, "relative_residual": residual / abs(value)}
        known |= {"certified": bool(found.certified.all()), "noise": found.noise}
        known["seconds"] = time.perf_counter() - begun
        known["stopped"] = "certified" if known["certified"] else "basis full"
    except Spent:
        known["stopped"] = f"time limit of {limit:.0f} s"
    except (torch.OutOfMemoryError, MemoryError) as error:
        known["stopped"] = f"out of memory: {str(error).splitlines()[0][:300]}"


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], argparse.Namespace(**json.loads(sys.argv[2])))), flush=True)
