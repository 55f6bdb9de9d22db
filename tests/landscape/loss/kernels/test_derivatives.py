"""What a derivative leaves behind."""

import subprocess
import sys

import pytest

FREED = """
import gc, sys, weakref
import torch
{before}
from fedscope import Hessian, top_eigenpairs

torch.manual_seed(0)
norm = torch.nn.BatchNorm1d(5)
norm.running_mean, norm.num_batches_tracked = torch.ones(5), torch.tensor(1)
model = torch.nn.Sequential(torch.nn.Linear(6, 5), norm, torch.nn.GELU(), torch.nn.Linear(5, 3))
batches = [(torch.randn(30, 6), torch.arange(30) % 3) for _ in range(3)]
gc.collect()
gc.disable()
H = Hessian(model, torch.nn.functional.cross_entropy, batches)
held = weakref.ref(H), weakref.ref(H.loss)
found = top_eigenpairs(H, seed=0)
assert found.samples is not None
del H, found
assert [one() for one in held] == [None, None]
assert ("torch._dynamo" in sys.modules) == {imported}
"""
OTHERWISE_MADE = "from fedscope.landscape.loss.kernels import derivatives; derivatives._left_alone = tuple"
"""As of a PyTorch that lets the compiler skip what it has in Python in another way."""


@pytest.mark.parametrize(
    ("before", "imported"),
    [
        ("", False),
        pytest.param(OTHERWISE_MADE, True, marks=pytest.mark.slow),
    ],
)
def test_an_operator_goes_with_its_name(before: str, imported: bool) -> None:
    """In a process that takes its first derivative in forward mode: no graph waits for the collector."""
    program = FREED.format(before=before, imported=imported)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
