"""What MAN's page says of negative eigenvalues, by the densities of the committed Figure 4b."""

import json
import re
from pathlib import Path

import pytest
import torch

from fedscope.landscape.spectral.gauss_quadrature import share_limits
from fedscope.records.hessian_record import HessianRecord
from fedscope.statistics.standard_errors import mean_stderr

ROOT = Path(__file__).parents[2]


def least_share(record: HessianRecord) -> tuple[float, float]:
    """Return the least share of the trace that eigenvalues below 0 take, and its error over probes."""
    assert record.density
    nodes, weights = (torch.tensor(rows).double() for rows in (record.density.nodes, record.density.weights))
    trace, taken = float((nodes * weights).sum(1).mean()), []
    for probe in zip(nodes, weights, strict=True):
        ends = torch.linspace(float(probe[0].min()) - 1e-9, 0, 201).tolist()
        taken.append(sum(share_limits(*probe, end)[0] for end in ends[:-1]) * (ends[1] - ends[0]) / trace)
    return sum(taken) / len(taken), mean_stderr(taken)


@pytest.mark.slow
def test_the_page_says_what_the_densities_say() -> None:
    artefact = json.loads((ROOT / "figures" / "man" / "figure4b-cpu.json").read_text("utf-8"))
    page = " ".join((ROOT / "docs" / "papers" / "man.md").read_text("utf-8").split())
    said = re.findall(r"(\d+\.\d) ± (\d\.\d) % of (?:the trace of )?(Fed[\w+]+)", page)
    found = []
    for run in artefact["runs"]:
        result = run["checkpoints"]["density"]["result"]
        kept = ROOT / "checkpoints" / "papers" / ".analysis" / f"{result}.json"
        share, error = least_share(HessianRecord.read(json.loads(kept.read_text("utf-8"))["record"]))
        found.append((f"{100 * share:.1f}", f"{100 * error:.1f}", run["row"]))
    assert said == found
