"""`fedscope runs`: what the registry holds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedscope.checkpoints.files import load_checkpoint
from fedscope.checkpoints.registry import COLUMNS, Registry
from fedscope.cli import console, options, runs_add


@click.group("runs")
def command() -> None:
    """List the registry's runs, show one, or add one that another program trained."""


command.add_command(runs_add.command)
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@command.command("list")
@options.registry
@as_json
def list_runs(registry: Path, as_json: bool) -> None:
    """List all runs, newest first."""
    rows = Registry(registry).rows()
    if as_json:
        console.write_json("-", rows)
    elif not rows:
        console.note(f"the registry {registry} holds no run yet; `fedscope train` makes one")
    else:
        shown = [{**row, "created": str(row["created"])[:16].replace("T", " ")} for row in rows]  # UTC
        cells = [[_cell(row[column]) for column in COLUMNS] for row in shown]
        console.print_table(f"Runs in {registry}", COLUMNS, cells)


@command.command("show")
@click.argument("run")
@options.registry
@as_json
def show(run: str, registry: Path, as_json: bool) -> None:
    """Show one run: its settings, its checkpoints and its last rounds."""
    found = Registry(registry).run(run)
    manifest, metrics = found.manifest(), found.metrics()
    paths = [*sorted(found.folder.glob("*.pt")), *found.clients()]
    checkpoints = []
    for path in paths:
        loaded = load_checkpoint(path)
        entry = {
            "path": str(path),
            "kind": loaded.info.kind,
            "round": loaded.info.round,
            "client": loaded.info.client,
        }
        checkpoints.append({**entry, "sha256": loaded.sha256, **loaded.info.metrics})
    if as_json:
        content = {"manifest": manifest.model_dump(), "metrics": metrics, "checkpoints": checkpoints}
        console.write_json("-", content)
        return
    known = {
        name: value for name, value in manifest.stated().items() if value is not None or not manifest.added
    }
    fields = {**known, "created": manifest.created}
    if manifest.added:
        fields["added from"] = manifest.added.source
        fields["changes"] = "; ".join(manifest.added.notes) or "none"
    fields["data"] = (
        f"{manifest.data.train_samples} train, {manifest.data.test_samples} test, "
        f"{manifest.data.fingerprint[:12]}"
        if manifest.data.fingerprint
        else manifest.data.name
    )
    if manifest.preset:
        fields["preset"] = manifest.preset.name
        fields["departs from it in"] = "; ".join(manifest.preset.overridden) or "nothing"
        fields["provisional in it"] = ", ".join(manifest.preset.provisional) or "nothing"
    fields["versions"] = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    console.print_table(
        manifest.name, ["setting", "value"], [[key, _cell(value)] for key, value in fields.items()]
    )
    files = [[Path(str(c["path"])).stem, c["kind"], c["round"], str(c["sha256"])[:12]] for c in checkpoints]
    console.print_table(
        "Checkpoints", ["file", "kind", "round", "sha256"], [list(map(_cell, row)) for row in files]
    )
    last = [
        [_cell(m[k]) for k in ("round", "accuracy", "loss", "train_loss", "seconds")] for m in metrics[-5:]
    ]
    console.print_table("Last rounds", ["round", "accuracy", "loss", "training loss", "seconds"], last)
    counted = [m for m in metrics if "seconds_in" in m]  # older runs did not count
    if counted:
        console.print_table("Cost", ["of all rounds", "total", "per round"], _costs(counted))


def _costs(metrics: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the table rows of what the rounds cost together and on average."""
    rows = []
    for name, key, unit, scale in (
        ("to the clients", "bytes_down", "MB", 1e6),
        ("from the clients", "bytes_up", "MB", 1e6),
        ("mini-batch gradients", "gradients", "", 1),
        ("time", "seconds", "s", 1),
    ):
        total = sum(m[key] for m in metrics) / scale
        rows.append([name, f"{total:,.5g} {unit}".strip(), f"{total / len(metrics):,.5g} {unit}".strip()])
    for phase in metrics[0]["seconds_in"]:
        total = sum(m["seconds_in"][phase] for m in metrics)
        rows.append([f"– {phase}", f"{total:,.4g} s", f"{total / len(metrics):,.4g} s"])
    peak = max(max(m["peak_memory_bytes"]) for m in metrics)
    return [*rows, ["peak memory of a worker", f"{peak / 1e6:,.0f} MB", ""]]


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "–"
    return "–" if value is None else str(value)
