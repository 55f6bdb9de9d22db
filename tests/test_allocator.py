import platform
import resource
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from fedscope.allocator import reuse_freed_memory
if sys.argv[1] == "keep":
    assert reuse_freed_memory()
def step():
    return sum(torch.full((4_000_000,), 1.0) for _ in range(3))
for _ in range(10):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_repeated_steps_ask_for_no_new_pages() -> None:
    faults = [
        int(subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, check=True).stdout)
        for how in ("plain", "keep")
    ]
    pages = 10 * 4_000_000 * 4 // resource.getpagesize()
    assert faults[0] > pages / 4  # what is lost without it
    assert faults[1] < pages / 100
