#!/usr/bin/env bash
# Flower 1.42.0: torch.save of an ArrayRecord, which a strategy returns as result.arrays, works until the record has been deflated, as it
# is when it is sent. From then on it raises "cannot pickle memoryview objects", and leaves a file of the name that was asked for, which
# torch.load cannot read. What deflate() returns are the arrays' names and hashes, and no number of them.
# to_torch_state_dict() gives a state_dict, which can be saved before and after.
# Seen: a file, then TypeError and a file that is none; 16,384 bytes of numbers deflated to less than 200. What follows: a damaged file that a
# Flower app has left may never have been whole, and a copy does not mend it: say which call writes one.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.4.6 flwr==1.42.0
cd "$place"
"$place/venv/bin/python" -W ignore - <<'PY'
from importlib.metadata import version
from pathlib import Path

import torch
from flwr.app import ArrayRecord

print("flwr", version("flwr"), "torch", torch.__version__)
state = {"w": torch.randn(64, 64)}
record = ArrayRecord(state)
torch.save(record, "before.pt")
deflated = record.deflate()
print("deflate() gives", len(deflated), "bytes of", state["w"].nbytes)
assert len(deflated) < 200 and b'"w"' in deflated
try:
    torch.save(record, "after.pt")
    raised = None
except TypeError as error:
    raised = error
print("torch.save raises", repr(raised), "and leaves", Path("after.pt").stat().st_size, "bytes")
assert "memoryview" in str(raised)
try:
    torch.load("after.pt", weights_only=True)
    refused = None
except RuntimeError as error:
    refused = error
assert "data.pkl" in str(refused)
torch.save(record.to_torch_state_dict(), "state.pt")
assert torch.equal(torch.load("state.pt", weights_only=True)["w"], state["w"])
PY
