#!/usr/bin/env bash
# PyTorch 2.13.0: a layer under parametrizations.orthogonal(…, orthogonal_map="householder") becomes the zero matrix after one step of
# SGD with weight decay, without an error. The map multiplies its columns by the stored diagonal cut to an integer; that is ±1,
# has no gradient, and a decay of any size moves it to ±0.99…, which is cut to 0. Whatever else moves the weights off their
# stored values does the same to some columns: noise, interpolation, rounding. "matrix_exp" and "cayley" stay orthogonal.
# Seen: ‖WᵀW − 1‖ is below 1e-6 before and 2.0 after the step for householder, all columns 0; below 1e-6 for the others.
# What follows: the loss jumps at such weights, so that curvature holds there alone, and surfaces around them and averages of
# decayed models are of a network with zeros.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$place/venv/bin/python" -W ignore - <<'PY'
import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal

print("torch", torch.__version__)


def off(weight):
    return float((weight.T @ weight - torch.eye(4)).norm())


found = {}
for kind in ("householder", "matrix_exp", "cayley"):
    torch.manual_seed(0)
    layer = orthogonal(nn.Linear(4, 4, bias=False), orthogonal_map=kind)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, weight_decay=1e-4)
    before = off(layer.weight)
    layer(torch.randn(8, 4)).tanh().sum().backward()
    optimizer.step()
    found[kind] = off(layer.weight)
    columns = [round(float(column), 4) for column in layer.weight.norm(dim=0)]
    print(f"{kind:12s} before {before:.1e} after {found[kind]:.1e}, columns' lengths {columns}")
    assert before < 1e-5

assert found["householder"] == 2.0
assert max(found["matrix_exp"], found["cayley"]) < 1e-5
PY
