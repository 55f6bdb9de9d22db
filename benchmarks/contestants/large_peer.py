"""λ_max of GPT-2 small by a peer, on the sequences of ``large_jobs.py``: its own product and algorithm.

    python large_peer.py NAME FOLDER MEMORY MOST THREADS

FOLDER is what ``large_jobs.py gpt2`` wrote, MEMORY the bytes that may be allocated, MOST the products. Prints
a line for every product, then the value, or that memory was not enough.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

TOL = 1e-2
STEPS = 9  # what a certified λ_max took; hessian-eigenthings makes 2 unless told, and finds an eighth of it


class Network(nn.Module):
    """Token ids (B, T) ↦ logits (B (T − 1), V) of the next tokens."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        networks = import_module("transformers").AutoModelForCausalLM
        self.own = networks.from_pretrained(folder, attn_implementation="eager").eval()

    def forward(self, ids: Tensor) -> Tensor:
        """Return them."""
        logits: Tensor = self.own(input_ids=ids, use_cache=False).logits
        return logits[:, :-1].reshape(-1, logits.shape[-1])


class Enough(Exception):
    """So many products were taken as are allowed."""


def batches(folder: Path) -> list[tuple[Tensor, Tensor]]:
    """Return the sequences, one by one, each with its next tokens, the last of which ends the document."""
    tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(folder / "base")
    lines = (folder / "text" / "train.jsonl").read_text().splitlines()
    texts = [tokenizer(json.loads(line)["text"])["input_ids"] for line in lines]
    ids = [torch.tensor([[*text, tokenizer.eos_token_id]]) for text in texts]
    return [(row, row[0, 1:]) for row in ids]


def main(name: str, folder: Path, memory: int, most: int, threads: int) -> None:
    """Run a peer."""
    torch.set_num_threads(threads)
    model, data, begun, taken = Network(folder / "base"), batches(folder), time.perf_counter(), 0
    loss_fn = nn.CrossEntropyLoss()
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))

    def counted(product: Callable[..., Any], *args: Any) -> Any:
        nonlocal taken
        if taken == most:
            raise Enough
        found = product(*args)
        taken += 1
        print(json.dumps({"products": taken, "seconds": time.perf_counter() - begun}), flush=True)
        return found

    try:
        value = {"pyhessian": _pyhessian, "hessian-eigenthings": _eigenthings, "curvlinops": _curvlinops}[
            name
        ](model, data, loss_fn, counted)
        print(json.dumps({"value": value, "products": taken, "seconds": time.perf_counter() - begun}))
    except Enough:
        print(json.dumps({"enough": taken}))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        print(json.dumps({"out_of_memory": str(error)[:200], "products": taken}))


Data = list[tuple[Tensor, Tensor]]
Counted = Callable[..., Any]


def _pyhessian(model: nn.Module, data: Data, loss_fn: nn.Module, counted: Counted) -> float:
    engine = import_module("pyhessian").hessian(model, loss_fn, dataloader=data, cuda=False)
    engine.dataloader_hv_product = partial(counted, engine.dataloader_hv_product)
    values, _ = engine.eigenvalues(tol=TOL)
    return float(values[0])


def _eigenthings(model: nn.Module, data: Data, loss_fn: nn.Module, counted: Counted) -> float:
    library = import_module("hessian_eigenthings")
    operator = library.HessianOperator(model, data, library.supervised_loss(loss_fn))
    product = library.LambdaOperator(partial(counted, operator.matvec), operator.size)
    found = library.lanczos(product, k=1, which="LA", tol=TOL, max_iter=STEPS, seed=0)
    return float(found.eigenvalues[0])


def _curvlinops(model: nn.Module, data: Data, loss_fn: nn.Module, counted: Counted) -> float:
    linalg, parameters = (
        import_module("scipy.sparse.linalg"),
        [p for p in model.parameters() if p.requires_grad],
    )
    operator = import_module("curvlinops").HessianLinearOperator(
        model, loss_fn, parameters, data, check_deterministic=False
    )
    n = operator.shape[0]

    def product(v: np.ndarray) -> np.ndarray:
        found: np.ndarray = (operator @ torch.from_numpy(v.reshape(-1).astype(np.float32))).numpy()
        return found

    asked = linalg.LinearOperator((n, n), matvec=partial(counted, product), dtype=np.float32)
    values = linalg.eigsh(asked, k=1, which="LA", tol=TOL, return_eigenvectors=False)
    return float(values[0])


LARGEST = {"pyhessian": _pyhessian, "hessian-eigenthings": _eigenthings, "curvlinops": _curvlinops}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:6]))
