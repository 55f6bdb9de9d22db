#!/usr/bin/env bash
# PyTorch 2.13.0: the gradient through torch.cond is right, but with create_graph=True it comes without a graph and without an error.
# A second derivative then lacks what goes through the branch: of a loss with a term beside the branch, autograd.grad twice returns
# a number, and it is that of the other term alone.
# Seen: 2.000000 for 1.355782. What follows: a double backward through torch.cond must be refused, or compared with differences.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$place/venv/bin/python" -W ignore - <<'PY'
import torch

torch.set_default_dtype(torch.float64)
w = torch.tensor(0.7, requires_grad=True)


def twice(branch):
    loss = branch(w) + w**2
    (slope,) = torch.autograd.grad(loss, w, create_graph=True)
    return slope.item(), torch.autograd.grad(slope, w)[0].item()


plain = twice(lambda t: t.sin())
traced = twice(lambda t: torch.cond(torch.tensor(True), torch.sin, torch.cos, (t,)))
print("torch", torch.__version__)
print("if:         first %.6f second %.6f" % plain)
print("torch.cond: first %.6f second %.6f" % traced)
assert abs(plain[0] - traced[0]) < 1e-12
assert abs(plain[1] - (2 - torch.sin(w).item())) < 1e-12
assert abs(traced[1] - 2) < 1e-12
PY
