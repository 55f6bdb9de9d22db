"""Every option of a measuring command reaches what measures: one table of the options of each.

An option that is given otherwise changes the request, the targets or the arguments that the measuring
function gets. An option that the table lacks fails the first test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.errors import UserError
from fedscope.workflows.sources.targets import Targets
from tests.cli.conftest import Command

CLIENTS, CODE, FIGURE = ("--clients",), ("--reading", "code"), ("--figure", "drawn.png")
OWN = ("--model", "some:net", "--data", "some:data")
COMMON: Mapping[str, Sequence[Sequence[str]]] = {
    "samples": (["--samples", "7"],),
    "checkpoints": (["tiny@initial"],),
    "data_dir": (["--data-dir", "elsewhere"],),
    "bn": (["--bn", "batch"],),
    "dtype": (["--dtype", "float64"],),
    "batch_size": (["--batch-size", "5"],),
    "seed": (["--seed", "3"],),
    "device": (["--device", "cpu"],),
    "threads": (["--threads", "2"],),
    "registry": (["--registry", "elsewhere"],),
}
ANY: Mapping[str, Sequence[Sequence[str]]] = {
    **COMMON,
    "model": (["--model", "other:net"], OWN),
    "data": (["--data", "other:data"], OWN),
    "loss": (["--loss", "other:loss"], OWN),
    "entry": (["--entry", "ema"], OWN),
    "split": (["--split", "test"],),
    "round_range": (["--rounds", "1:3"],),
    "step_range": (["--local-steps", "1:3"],),
}
OPTIONS: Mapping[str, Mapping[str, Sequence[Sequence[str]]]] = {
    "hessian": {
        **ANY,
        "top_k": (["--top-k", "3"],),
        "only": (["--only", "lambda_max"],),
        "tol": (["--tol", "0.01"],),
        "probes": (["--probes", "4"],),
        "trace_rtol": (["--trace-rtol", "0.5"],),
        "density": (["--density"],),
        "influence": (["--influence", "3"],),
        "reading": (["--reading", "code"],),
        "clients": (["--clients"],),
        "client_weights": (["--client-weights", "global"], CLIENTS),
        "client_data": (["--client-data", "global"], CLIENTS),
        "pairs": (["--pairs", "all_including_self"], CLIENTS),
        "client_rtol": (["--client-rtol", "0.5"], CLIENTS),
        "client_max_probes": (["--client-max-probes", "16"], CLIENTS),
        "client_probes": (["--client-probes", "16"], CLIENTS),
        "client_diagonal": (["--client-diagonal", "tensor"], CLIENTS),
        "overlap": (["--overlap", "1"], CLIENTS),
        "product_batches": (["--product-batches", "all"], CODE),
        "augment": (["--no-augment"], CODE),
        "resample": (["--no-resample"], CODE),
        "operator": (["--operator", "ggn"],),
        "products": (["--products", "finite-differences"],),
        "parameters": (["--parameters", "*.bias"],),
        "engine": (["--engine", "power"],),
        "both_ends": (["--both-ends"],),
        "layers": (["--layers"],),
        "blocks": (["--blocks"],),
        "preconditioned": (["--preconditioned"],),
        "memory": (["--memory", "8G"],),
        "dry_run": (["--dry-run"],),
        "recompute": (["--recompute"],),
        "figure": (["--figure", "drawn.png"],),
        "kind": (["--kind", "eigenvalues"], FIGURE),
    },
    "clients": {
        **COMMON,
        "only": (["--only", "loss"],),
        "top_k": (["--top-k", "3"],),
        "anchor": (["--anchor", "global"],),
        "start": (["--start"],),
        "tol": (["--tol", "0.1"],),
        "probes": (["--probes", "4"],),
        "round_range": (["--rounds", "1:3"],),
        "recompute": (["--recompute"],),
    },
    "sharpness": {
        **ANY,
        "only": (["--only", "trace"],),
        "rho": (["--rho", "0.3"],),
        "m": (["--m", "8"],),
        "steps": (["--steps", "3"],),
        "reading": (["--reading", "code"],),
        "pairs": (["--pairs", "4"],),
        "normalize_logits": (["--normalize-logits"],),
        "layer": (["--layer", "fc.weight"],),
        "target": (["--target", "0.3"], ("--only", "pac_bayes")),
        "against": (["--against", "gap"],),
        "recompute": (["--recompute"],),
    },
}  # fmt: skip
DRAWN = {
    "hessian": {"json_target"},
    "clients": {"json_target", "figure", "kind", "width", "seconds"},
    "sharpness": {"json_target", "figure", "kind"},
}
"""What changes only how a result is shown, which the tests of tables and pictures see."""
MEASURING = {
    "hessian": ("workflows.curvature.hessian_command.curvature", "workflows.curvature.hessian_command.plans"),
    "clients": ("workflows.clients.measure_clients.clients",),
    "sharpness": ("workflows.sharpness.measure_sharpness.sharpness",),
}
TABLE = [(command, option) for command, options in OPTIONS.items() for option in options]


@pytest.mark.parametrize("command", OPTIONS)
def test_the_table_has_every_option(command: str) -> None:
    params = import_module(f"fedscope.cli.{command}").command.params
    assert {param.name for param in params} == OPTIONS[command].keys() | DRAWN[command]


@pytest.mark.parametrize(("command", "option"), TABLE)
def test_an_option_reaches_what_measures(
    fedscope: Command, run: RunFolder, monkeypatch: pytest.MonkeyPatch, command: str, option: str
) -> None:
    seen: list[Any] = []
    Path("elsewhere").symlink_to(run.folder.parent)

    def measuring(name: str) -> Any:
        def measured(*arguments: Any, **named: Any) -> None:
            seen.append((name, arguments[:2], named))  # targets and request; not the terminal
            raise UserError("seen")

        return measured

    def along(targets: Targets, *ranges: Any) -> Targets:
        return replace(targets, checkpoints=tuple(map(str, ranges[:2]))) if any(ranges[:2]) else targets

    for place in MEASURING[command]:
        monkeypatch.setattr(f"fedscope.{place}", measuring(place))
    for reader in ("along", "along_given", "best_of_runs"):
        stand_in = best if reader == "best_of_runs" else along
        monkeypatch.setattr(f"fedscope.cli.{command}.{reader}", stand_in, raising=False)
    changed, *context = OPTIONS[command][option]
    plain = [] if option == "checkpoints" else ["tiny"]
    for given in ([], changed):
        done = fedscope(command, *plain, *(context[0] if context else ()), *given)
        assert (done.code, done.err.splitlines()[-1]) == (2, "Error: seen"), done.err
    assert seen[0] != seen[1]


def best(targets: Targets) -> Targets:
    return replace(targets, checkpoints=("best",))
