"""What a derivative leaves behind."""

import subprocess
import sys

FREED = """
import gc, weakref
import torch
from fedscope import Hessian, top_eigenpairs

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
batches = [(torch.randn(30, 6), torch.arange(30) % 3) for _ in range(3)]
gc.collect()
gc.disable()
H = Hessian(model, torch.nn.functional.cross_entropy, batches)
held = weakref.ref(H), weakref.ref(H.loss)
found = top_eigenpairs(H, seed=0)
assert found.samples is not None
del H, found
assert [one() for one in held] == [None, None]
"""


def test_an_operator_goes_with_its_name() -> None:
    """In a process that takes its first derivative in forward mode: no graph waits for the collector."""
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
