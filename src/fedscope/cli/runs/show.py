"""`fedscope runs show`: one run, or the chain from a figure back to the code."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedscope.checkpoints.file.schema import Manifest, Round
from fedscope.checkpoints.registry.addresses import address_of
from fedscope.checkpoints.registry.best import best, chosen_on
from fedscope.checkpoints.registry.method_code import changed_methods
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import Command
from fedscope.cli.terminal import answers, console
from fedscope.errors import UserError
from fedscope.records.round_quantities import QUANTITIES
from fedscope.workflows.results.stored_answers import Answer

if TYPE_CHECKING:
    from fedscope.checkpoints.registry.provenance_chain import Link

RECORDS = (".png", ".pdf", ".svg", ".html", ".json")


@click.command(
    "show",
    cls=Command,
    examples={
        "fedscope runs show a": "a run's settings and last rounds",
        "fedscope runs show figure.png --provenance": "from a figure back to the code",
    },
)
@click.argument("run", metavar="RUN|CKPT|FILE", shell_complete=completion.checkpoints)
@click.option(
    "--provenance", is_flag=True, help="Follow a figure, .json, checkpoint or run back to its code."
)
@shared.registry
@shared.json_target
def show_command(run: str, provenance: bool, registry: Path, json_target: str | None) -> None:
    """Show one run: its settings, its checkpoints and its last rounds."""
    if provenance:
        _show_chain(links(RunRegistry(registry), run), json_target=json_target)
        return
    found = RunRegistry(registry).run(run)
    answers.print_or_make(
        partial(_described, found), json_target, [found.folder], command="runs show", run=found.folder
    )


def _described(found: RunFolder) -> Answer:
    from fedscope.checkpoints.file.checkpoint import load_checkpoint
    from fedscope.checkpoints.registry.whose import pairing_in

    manifest, metrics, pairing = found.manifest(), found.metrics(), pairing_in(found)
    entries, files = [], []
    for path in [
        *sorted(found.folder.glob("[!.]*.pt")),
        *found.of_rounds(),
        *found.steps(),
        *found.clients(),
    ]:
        loaded = load_checkpoint(path)
        info, sha256 = loaded.info, loaded.sha256
        place = {"path": str(path), "kind": info.kind, "round": info.round, "client": info.client}
        place |= {"step": info.step} if info.step else {}
        entries.append({**place, "sha256": sha256, **info.metrics})
        files.append([address_of(path) or path.stem, info.kind, sha256[:12], console.cell(info.round)])
    content = {
        "manifest": manifest.model_dump(mode="json"),
        "metrics": [one.to_json() for one in metrics],
        "tags": found.tags(),
        "checkpoints": entries,
        "pairing": pairing and pairing.to_json(),
    }
    columns = ["checkpoint", "kind", "sha256", "round"]
    shown: list[console.Piece] = [
        _settings(found, manifest, metrics, pairing.lines if pairing else ()),
        ("table", "Checkpoints", columns, files, {"text_columns": 3}),
    ]
    if metrics:
        shown.append(_rounds(metrics))
    if metrics and metrics[-1].diagnostics:
        shown.append(_diagnostics(metrics))
    counted = [m for m in metrics if m.seconds_in]  # an added run has none
    if counted:
        shown.append(("table", "Cost", ["of all rounds", "total", "per round"], _costs(counted)))
    return Answer(content, shown)


def _settings(
    found: RunFolder, manifest: Manifest, metrics: Sequence[Round], models: Sequence[str]
) -> console.Piece:
    known = {k: v for k, v in manifest.stated().items() if v is not None or not manifest.added}
    state = found.status(manifest) + (f" in round {manifest.diverged}" if manifest.diverged else "")
    state += f", extended from {', '.join(map(str, manifest.extended))} rounds" if manifest.extended else ""
    fields = {**known, "created": manifest.created, "state": state}
    if top := best(metrics):
        split = chosen_on(manifest.stated())
        on = f" (chosen on {split})" if split else ""
        fields["best"] = f"round {top.round}, {console.percent(top.accuracy)}{on}"
    if manifest.added:
        fields["added from"] = manifest.added.source
        fields["changes"] = "; ".join(manifest.added.notes) or "none"
    fields["data"] = manifest.data.name
    if manifest.data.fingerprint:
        fields["data"] = (
            f"{manifest.data.train_samples} train, {manifest.data.test_samples} test, "
            f"{manifest.data.fingerprint[:12]}"
        )
    fields["clients' rows"] = _rows_known(found, manifest)
    if manifest.preset:
        fields["preset"] = manifest.preset.name
        fields["departs from it in"] = "; ".join(manifest.preset.overridden) or "nothing"
        fields["provisional in it"] = ", ".join(manifest.preset.provisional) or "nothing"
    if manifest.methods:
        fields["methods of others"] = "; ".join([one.text for one in manifest.methods])
        fields["changed since"] = "; ".join(changed_methods(manifest)) or "nothing"
    if manifest.clients_deleted or models:
        fields["clients' models"] = "; ".join(models) or "deleted"
    if manifest.steps_deleted:
        fields["models of local steps"] = "deleted"
    if manifest.checkpoints_deleted:
        fields["deleted models"] = ", ".join(manifest.checkpoints_deleted)
    fields["tags"] = list(found.tags())
    fields["versions"] = ", ".join(f"{name} {version[:12]}" for name, version in manifest.versions.items())
    rows = [[key, console.cell(value)] for key, value in fields.items()]
    return "table", manifest.name, ["setting", "value"], rows, {"text_columns": 2}


def _rows_known(found: RunFolder, manifest: Manifest) -> str:
    from fedscope.checkpoints.registry.client_rows import rows_spec

    if manifest.rows:
        return f"stored, {manifest.rows.sha256[:12]}"
    return "of each round, stored with its uploads" if rows_spec(found) else "not stored"


def _rounds(metrics: Sequence[Round]) -> console.Piece:
    cell = console.cell
    rows = [
        [cell(m.round), console.percent(m.accuracy), cell(m.loss), cell(m.train_loss), cell(m.seconds)]
        for m in metrics[-5:]
    ]
    return "table", "Last rounds", ["round", "accuracy", "loss", "training loss", "seconds"], rows


def _diagnostics(metrics: Sequence[Round]) -> console.Piece:
    last = metrics[-3:]
    rows = [
        [one.label, *((console.percent if one.share else console.cell)(one.at(m)) for m in last)]
        for one in QUANTITIES
        if any(one.at(m) is not None for m in last)
    ]
    return "table", "Diagnostics", ["quantity", *(f"round {m.round}" for m in last)], rows


def links(registry: RunRegistry, reference: str) -> list["Link"]:
    """Return the chain from a figure, an analysis, a checkpoint or a run back to the code."""
    from fedscope.checkpoints.registry.provenance_chain import checkpoint_links, record_links
    from fedscope.figures.embedded_record import read_record

    if Path(reference).suffix.lower() in RECORDS:
        return list(record_links(registry, reference, read_record(Path(reference))))
    return list(checkpoint_links(registry.resolve(reference)))


def _show_chain(chain: Sequence["Link"], *, json_target: str | None) -> None:
    content = [{"kind": c.kind, "name": c.name, **c.details, "fault": c.fault} for c in chain]
    if not console.in_json(json_target, content):
        rows = []
        for link in chain:
            fault = {"fault": link.fault} if link.fault else {}
            for key, value in {"": link.name, **link.details, **fault}.items():
                rows.append(["" if key else link.kind, key, value])
        console.print_table("Provenance", ["link", "", "value"], rows, text_columns=3)
    for broken in (link for link in chain if link.fault):
        raise UserError(f"the chain breaks at the {broken.kind} {broken.name}: {broken.fault}")


def _costs(metrics: Sequence[Round]) -> list[list[str]]:
    rows = []
    for name, values, unit, scale in (
        ("to the clients", [m.bytes_down for m in metrics], "MB", 1e6),
        ("from the clients", [m.bytes_up for m in metrics], "MB", 1e6),
        ("mini-batch gradients", [m.gradients for m in metrics], "", 1),
        ("time", [m.seconds for m in metrics], "s", 1),
    ):
        total = sum(values) / scale
        rows.append([name, f"{total:,.5g} {unit}".strip(), f"{total / len(metrics):,.5g} {unit}".strip()])
    for phase in dict.fromkeys(phase for m in metrics for phase in m.seconds_in):
        total = sum(m.seconds_in.get(phase, 0) for m in metrics)
        if not total:
            continue
        rows.append([f"– {phase}", f"{total:,.4g} s", f"{total / len(metrics):,.4g} s"])
    peak = max((peak for m in metrics for peak in m.peak_memory_bytes), default=0)
    return [*rows, ["peak memory of a worker", f"{peak / 1e6:,.0f} MB", ""]]
