"""λ_max of the GPT-2 of ``command_networks.py`` by PyHessian.

    python command_peer.py FILE.pt VALUE

Its own rule ends it, when the value changes by less than a tolerance of itself; the tolerance is the largest
power of ten with which it comes within 1e-3 of VALUE, which nobody knows before. What the tolerances before
it took is not counted: ``own`` has the processor seconds of that one search, and of start and imports.
"""

import json
import sys
import time

import command_networks
import torch
from pyhessian import hessian
from torch import nn

NEAR = 1e-3
MOST = 300  # products


def main(file: str, value: float) -> None:
    """Print the value, its tolerance, products and seconds."""
    torch.set_num_threads(1)
    model, batches = command_networks.gpt2(), command_networks.text()
    model.load_state_dict(torch.load(file))
    model.eval()
    begun = time.process_time()
    for tolerance in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        torch.manual_seed(0)
        start, products = time.process_time(), 0
        engine = hessian(model, nn.CrossEntropyLoss(), dataloader=batches, cuda=False)
        own_product = engine.dataloader_hv_product

        def counted(vector: object) -> object:
            nonlocal products
            products += 1
            return own_product(vector)  # noqa: B023

        engine.dataloader_hv_product = counted
        found = engine.eigenvalues(maxIter=MOST, tol=tolerance)[0][0]
        spent = time.process_time() - start
        if abs(found - value) <= NEAR * abs(value):
            break
    told = {"lambda_max": found, "tol": tolerance, "products": products, "own": begun + spent}
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
