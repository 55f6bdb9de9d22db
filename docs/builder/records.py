"""The reference of the JSON that commands print and files hold, from the models that read it."""

from collections.abc import Iterator

from pydantic import BaseModel

from builder.commands import options
from builder.fields import Field, anchor, fields, shown
from builder.markdown import prose, table
from fedscope.checkpoints.file.schema import CheckpointInfo, Manifest, Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.records.artefact import ArtefactRecord
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord, ObjectiveRecord
from fedscope.records.outcomes import OutcomesRecord
from fedscope.records.partition_record import PartitionRecord
from fedscope.records.plan_record import PlanRecord
from fedscope.records.round_quantities import QUANTITIES
from fedscope.records.run_curves import RunCurves
from fedscope.records.sharpness_record import CorrelationRecord, SharpnessRecord

FOLDER = "reference/json"
# page → its title, what writes such a record, and the models that its readers start from
RECORDS: dict[str, tuple[str, str, tuple[type[BaseModel], ...]]] = {
    "hessian": ("Curvature", "`fedscope hessian --json`", (HessianRecord,)),
    "plan": ("Plan", "`fedscope hessian --dry-run --json`", (PlanRecord,)),
    "sharpness": ("Sharpness", "`fedscope sharpness --json`", (SharpnessRecord, CorrelationRecord)),
    "clients": ("Clients of a round", "`fedscope clients --json`", (ClientsRecord,)),
    "landscape": (
        "Landscape",
        "`fedscope plot-landscape --json`; an `ObjectiveRecord` only recipes, in the registry's cache",
        (LandscapeRecord, ObjectiveRecord),
    ),
    "run": (
        "Run",
        "`manifest.json` and, a line per round, `metrics.jsonl`; both are in `fedscope runs show --json`",
        (Manifest, Round),
    ),
    "checkpoint": ("Checkpoint", "fedscope itself, inside every `.pt` file of a run", (CheckpointInfo,)),
    "run-curves": ("Curves of a run", "`fedscope plot-runs --json`", (RunCurves,)),
    "partition": ("Partition", "`fedscope data plot-partition --json`", (PartitionRecord,)),
    "artefact": ("Table or figure of a paper", "`fedscope figures build`", (ArtefactRecord,)),
    "outcomes": ("Right and wrong answers", "recipes, in the registry's cache", (OutcomesRecord,)),
}


def titles() -> dict[str, str]:
    """Return the pages by path, with their titles."""
    return {f"{FOLDER}/{page}.md": title for page, (title, *_) in RECORDS.items()}


def pages() -> dict[str, str]:
    """Return the pages by path."""
    return {f"{FOLDER}/{page}.md": _page(*entry) for page, entry in RECORDS.items()}


def index() -> str:
    """Return a table of the records."""
    rows = [
        [
            f"[{title}](json/{page}.md)",
            " and ".join(f"`{schema}`" for schema in map(schema_of, models) if schema),
            said,
        ]
        for page, (title, said, models) in RECORDS.items()
    ]
    return table(["record", "schema", "written by"], rows)


def quantities() -> str:
    """Return a table of the curves that a run's diagnostics make."""
    rows = [
        [f"`{one.name}`", f"`{one.field}`", one.unit, one.meaning, f"`{one.family}`"] for one in QUANTITIES
    ]
    return table(["curve", "field", "unit", "meaning", "`--kind`"], rows)


def schema_of(model: type[BaseModel]) -> str:
    """Return the name of a record's schema; empty where it has none."""
    for name in ("schema_name", "format"):
        if name in model.model_fields:
            return str(
                model.model_json_schema()["properties"][model.model_fields[name].alias or name]["const"]
            )
    return ""


def reached(models: tuple[type[BaseModel], ...]) -> Iterator[type[BaseModel]]:
    """Yield the models, and those that their fields hold, each once."""
    waiting, seen = list(models), set[type[BaseModel]]()
    while waiting:
        model = waiting.pop(0)
        if model not in seen:
            seen.add(model)
            yield model
            waiting += [inner for field in told(model) for inner in field.models]


def told(model: type[BaseModel]) -> list[Field]:
    """Return a model's fields; those of the settings mean what the options of ``fedscope train`` mean."""
    return fields(model, options("train") if model is Settings else {})


def _page(title: str, written: str, models: tuple[type[BaseModel], ...]) -> str:
    parts = [f"# {title}\n", f"Written by: {written}.\n"]
    for model in reached(models):
        schema = schema_of(model)
        parts.append(f"## {shown(model)} {{ #{anchor(model)} }}\n")
        if schema:
            parts.append(f"Schema `{schema}`.\n")
        parts.append(prose(_summary(model)) + "\n")
        rows = [[f"`{one.name}`", one.words, one.unit, prose(one.meaning)] for one in told(model)]
        told_as = table(["field", "type", "unit", "meaning"], rows)
        parts.append(f'<div class="fields" markdown>\n\n{told_as}\n</div>\n')
    return "\n".join(parts)


def _summary(model: type[BaseModel]) -> str:
    origin = getattr(model, "__pydantic_generic_metadata__", {}).get("origin") or model
    return str(origin.__doc__ or "")
