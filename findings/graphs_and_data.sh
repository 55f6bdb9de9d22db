#!/usr/bin/env bash
# PyTorch 2.13.0: setting .data of a parameter to another dtype and back leaves value, dtype and requires_grad as they were, yet cuts
# the parameter from every graph that was made before. autograd.grad of such a graph raises "not used in the graph", and
# returns zeros with materialize_grads=True. The assignment gives the parameter a new accumulator of gradients.
# Setting .data to a tensor of the same dtype does not.
# Seen: 4.0, 4.0 and 0.0. What follows: a network that is evaluated in float64 for a while, by .data or by module.double(), keeps no graph across it.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$place/venv/bin/python" -W ignore - <<'PY'
import torch

print("torch", torch.__version__)


def slope(between):
    w = torch.nn.Parameter(torch.tensor([2.0]))
    loss = (w**2).sum()
    between(w)
    assert (w.item(), w.dtype, w.requires_grad) == (2.0, torch.float32, True)
    return torch.autograd.grad(loss, w, materialize_grads=True)[0].item()


def there_and_back(w):
    own = w.data
    w.data = own.double()
    w.data = own


def same_dtype(w):
    w.data = w.data.clone()


untouched, same, cast = slope(lambda w: None), slope(same_dtype), slope(there_and_back)
print("untouched", untouched, "| .data of the same dtype", same, "| float64 and back", cast)
assert (untouched, same, cast) == (4.0, 4.0, 0.0)
PY
