"""The curvature engine and its peers on a GPU: one product, λ_max and the trace of three networks.

    python benchmarks/gpu/engine.py --json benchmarks/gpu/engine.json

with PyHessian, hessian-eigenthings and curvlinops, as benchmarks/curvature.py installs them; one that is
missing, or fails, is recorded as such. The networks and their random samples are those of
``engine_networks.py``. ``product``: contestants take turns, and a ratio is the median of the ratios within
a turn; blocks have turns of their own, compared with fedscope's single products in the turns of the same
number. Memory is what the first two products add to the largest allocation, graphs that are kept included.
``top1`` and ``trace``: whole runs by the clock, fedscope's to the error asked for and PyHessian's own with
its default tolerances, which bound no error: its vector's residual is measured with fedscope's product.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parents[1]))
import curvature_peers as peers
import machine
import torch
from engine_bench import Bench, Result, attempt, clocked, peak, tidy
from engine_networks import NETWORKS
from engine_runs import RTOL, TOL, top1_group, trace_group
from engine_table import tables
from torch import Tensor

from fedscope.process import use_device

BLOCK, BLOCK_TURNS = 8, 2  # vectors


def product_group(bench: Bench, turns: int, patience: float) -> Result:
    """Time one product, and then the block's per vector, in turns."""
    generator = torch.Generator(bench.device).manual_seed(0)
    block = torch.randn(BLOCK, bench.n, generator=generator, device=bench.device)
    reference = bench.ours.matvec(block[0])
    bench.renew()  # so that the memory of its graphs is seen
    ready: dict[str, Callable[[], Tensor]] = {}

    def warmed(name: str, made: Callable[[], Callable[[], Tensor]]) -> Result:
        call = made()
        added, image = peak(lambda: (call(), call())[1])
        ready[name] = call
        difference = float((image - reference).norm() / reference.norm())
        return {"peak_bytes": added} | ({} if name == "gradient" else {"difference": difference})

    def single(make: Callable[[], peers.Matvec]) -> Callable[[], Tensor]:
        product = make()
        return lambda: product(block[0])

    def curvlinops_block() -> Callable[[], Tensor]:
        product = peers.curvlinops_product(bench.own(), bench.batches, bench.loss_fn)
        columns = block.T.contiguous()
        return lambda: product(columns)[:, 0]

    makers = bench.products()
    found = {name: attempt(partial(warmed, name, partial(single, make))) for name, make in makers.items()}
    in_turns(ready, found, turns, patience)
    ready.clear()
    tidy()
    blocks: dict[str, Callable[[], Callable[[], Tensor]]] = {
        f"fedscope, {BLOCK} at once": lambda: lambda: bench.ours.products(block)[0].vector,
        f"curvlinops, {BLOCK} at once": curvlinops_block,
    }
    for name, made in blocks.items():
        found[name] = attempt(partial(warmed, name, made))
    in_turns(ready, found, BLOCK_TURNS, patience)
    ours = found["fedscope"].get("seconds", [])
    for name, one in found.items():
        if "seconds" in one:
            one["seconds"] = [s / (BLOCK if name in blocks else 1) for s in one["seconds"]]
            ratios = [theirs / mine for theirs, mine in zip(one["seconds"], ours, strict=False)]
            one["times_fedscope"] = median(ratios) if ratios else None
    return found


def in_turns(ready: dict[str, Callable[[], Tensor]], found: Result, turns: int, patience: float) -> None:
    """Add each contestant's seconds to what is found of it; one that fails is out."""
    begun = perf_counter()
    for turn in range(turns):
        if turn >= BLOCK_TURNS and perf_counter() - begun > patience:
            break
        for name, call in list(ready.items()):
            one = attempt(partial(clocked, call))
            if "failed" in one:
                found[name] = one
                del ready[name]
            else:
                found[name].setdefault("seconds", []).append(one["seconds"])


def main() -> None:
    """Measure group by group, keep the record after each, and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="networks and samples for a test of this script")
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--seconds", type=float, default=110, help="no group is begun after them")
    parser.add_argument("--patience", type=float, default=10, help="seconds of a contestant in a group")
    parser.add_argument("--turns", type=int, default=5)
    given, begun = parser.parse_args(), perf_counter()
    device = use_device(given.device, None)
    groups: dict[str, Callable[[Bench], Result]] = {
        "product": lambda bench: product_group(bench, given.turns, given.patience),
        "top1": lambda bench: top1_group(bench, given.patience),
        "trace": lambda bench: trace_group(bench, given.patience),
    }
    command = f"python benchmarks/gpu/engine.py --device {given.device}" + " --tiny" * given.tiny
    about = {"tol": TOL, "rtol": RTOL, "patience": given.patience, "tiny": given.tiny}
    networks: dict[str, Result] = {name: {} for name in given.only}
    record = {
        "schema": "fedscope/benchmark-gpu-curvature/1", "command": command, **about,
        "machine": machine.record(None) | {"cuda": torch.version.cuda}, "networks": networks,
    }  # fmt: skip
    benches: dict[str, Bench] = {}

    def measured(name: str, group: str) -> Result:
        if perf_counter() - begun > given.seconds:
            return {"failed": f"not begun within {given.seconds:g} s"}
        if name not in benches:
            bench = benches[name] = Bench(name, given.tiny, device)
            sizes = {"parameters": bench.n, "samples": bench.batches.samples}
            networks[name] |= sizes | {"batch_size": max(bench.batches.sizes)}
        return groups[group](benches[name])

    for group in groups:
        for name, entry in networks.items():
            entry[group] = attempt(partial(measured, name, group))
            tidy()
            given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            print(f"{perf_counter() - begun:.0f} s: {group} of {name}", file=sys.stderr, flush=True)
    for name, entry in networks.items():
        print(f"\n### {name}\n\n{tables({group: entry[group] for group in groups})}")


if __name__ == "__main__":
    main()
