"""FedGloSS' own ascent step beside our SAM quantity: python benchmarks/fedgloss.py minimizers.py.

The file is ``codebase/clients/minimizers.py`` of https://github.com/pietrocagnasso/fedgloss, which is not
part of this repository. Printed is the largest relative difference of the rise of the loss, in float64.
"""

import copy
import runpy
import sys

import torch
from torch import nn

import fedscope

SAMPLES = 96


def difference(ascent: type, rho: float, seed: int) -> float:
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
    ascent(torch.optim.SGD(moved.parameters(), lr=0.1), moved, rho, 0.0).ascent_step()
    theirs = (loss_fn(moved(inputs), labels) - before).item()
    return float(abs(ours - theirs) / abs(theirs))


if __name__ == "__main__":
    sam = runpy.run_path(sys.argv[1])["SAM"]
    print(max(difference(sam, rho, seed) for rho in (0.01, 0.05, 0.2) for seed in range(5)))
