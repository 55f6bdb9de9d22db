"""What of FedGloSS' program measures, beside ours: python benchmarks/fedgloss.py CODEBASE.

CODEBASE is the folder of that name of https://github.com/pietrocagnasso/fedgloss, which is not part of this
repository. Printed is the largest relative difference of the rise of the loss at its ascent step, beside our
SAM quantity, and of five eigenvalues by its power iteration, beside ``--engine power``; both in float64.
"""

import contextlib
import copy
import io
import runpy
import sys
from importlib import import_module
from pathlib import Path

import torch
from torch import Tensor, nn

import fedscope
from fedscope.landscape import LambdaOperator
from fedscope.landscape.published.engines import power_eigenpairs

SAMPLES, SIZE = 96, 40


def ascent(minimizer: type, rho: float, seed: int) -> float:
    """Return |ours − theirs|/|theirs| of one small network, all samples as one batch."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    inputs, labels = torch.randn(SAMPLES, 6).double(), torch.randint(4, (SAMPLES,))
    ours = fedscope.sharpness(
        net, data=(inputs, labels), only=["sam"], rho=rho, m=SAMPLES, batch_size=SAMPLES
    )["sam"].value
    moved, loss_fn = copy.deepcopy(net), nn.CrossEntropyLoss()
    before = loss_fn(moved(inputs), labels)
    before.backward()
    minimizer(torch.optim.SGD(moved.parameters(), lr=0.1), moved, rho, 0.0).ascent_step()
    theirs = (loss_fn(moved(inputs), labels) - before).item()
    return float(abs(ours - theirs) / abs(theirs))


def eigenvalues(codebase: Path, seed: int) -> float:
    """Return the largest |ours − theirs|/|λ₁| of five eigenvalues that lie close, of one random matrix."""
    sys.path.insert(0, str(codebase / "eigenthings"))
    theirs = import_module("hessian_eigenthings.power_iter")
    vars(theirs)["maybe_fp16"] = lambda vector, _: vector.double()  # it works in float32
    torch.manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(SIZE, SIZE, dtype=torch.float64))
    matrix = (basis * torch.linspace(-0.5, 1.0, SIZE, dtype=torch.float64)) @ basis.T

    def product(v: Tensor) -> Tensor:
        found: Tensor = matrix @ v.double()
        return found

    torch.manual_seed(seed)
    with contextlib.redirect_stdout(io.StringIO()):
        operator = theirs.LambdaOperator(product, SIZE)
        values, _ = theirs.deflated_power_iteration(operator, 5, use_gpu=False)
    ours = power_eigenpairs(LambdaOperator(product, SIZE, torch.float64), 5, seed=seed).values
    return float((ours - torch.from_numpy(values.copy())).abs().max() / abs(values[0]))


if __name__ == "__main__":
    where = Path(sys.argv[1])
    sam = runpy.run_path(str(where / "clients" / "minimizers.py"))["SAM"]
    print("ascent", max(ascent(sam, rho, seed) for rho in (0.01, 0.05, 0.2) for seed in range(5)))
    print("eigenvalues", max(eigenvalues(where, seed) for seed in range(5)))
