#!/usr/bin/env bash
# PyTorch 2.13.0: the first product of a dual number (torch.autograd.forward_ad) with a tensor that is none imports the compiler,
# torch._dynamo, with some 800 modules: about a second, in a program that compiles nothing. A product of two duals imports none of it,
# nor does double backward. The import also leaves a cycle that holds the frames it was called from: with the collector at rest, what
# these hold (a model, a process group) outlives them.
# Seen: 824 modules in 1.6 s for dual by plain, and the caller's object alive after its function; 1 or none, and freed, for the others.
# What follows: who needs one derivative in forward mode imports torch._dynamo beforehand and collects, or times it as start-up.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6
"$place/venv/bin/python" - <<'PY'
import subprocess
import sys

LINES = {
    "double backward": "w = x.requires_grad_(); g, = torch.autograd.grad((w * y).square().sum(), w, create_graph=True); "
    "torch.autograd.grad(g.sum(), w)",
    "dual by dual": "with forward.dual_level(): forward.make_dual(x, x) * forward.make_dual(y, y)",
    "dual by plain": "with forward.dual_level(): forward.make_dual(x, x) * y",
}
PROGRAM = """
import gc, sys, time, weakref
import torch
import torch.autograd.forward_ad as forward
gc.disable()
class Held: pass
def work():
    held, x, y = Held(), torch.ones(3), torch.ones(3)
    {line}
    return weakref.ref(held)
before, start = len(sys.modules), time.perf_counter()
held = work()
print(len(sys.modules) - before, "torch._dynamo" in sys.modules, held() is not None, f"{{time.perf_counter() - start:.1f}}")
"""
for name, line in LINES.items():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM.format(line=line)], capture_output=True, text=True, check=True)
    modules, compiler, alive, seconds = done.stdout.split()
    print(f"{name:16s} {modules:>4s} modules in {seconds} s, the compiler: {compiler}, the caller's object alive: {alive}")
    assert (compiler, alive) == (("True", "True") if name == "dual by plain" else ("False", "False")), name
    assert (int(modules) > 400) == (name == "dual by plain"), name
PY
