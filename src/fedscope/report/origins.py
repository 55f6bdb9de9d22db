"""Where every panel comes from: checkpoints by their hashes, settings, seeds, versions."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from fedscope.figures.embedded_record import made_from
from fedscope.figures.text.labels import label
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.hessian_record import CheckpointEntry
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.run_record import RunRecord
from fedscope.records.saved_records import Analysis


def source_of_analysis(record: Analysis | ClientsRecord) -> dict[str, Any]:
    landscape = record if isinstance(record, LandscapeRecord) else None
    asked = {**record.problem.to_json(), "directions": landscape and landscape.directions}
    settings = ", ".join(
        f"{name} {value}" for name, value in asked.items() if value is not None and name != "seed"
    )
    networks = landscape.networks if landscape else ()
    return {
        "title": f"{label(record.checkpoint)} ({record.schema_name})",
        "lines": {
            "checkpoint sha256": record.checkpoint.sha256,
            **({"networks": ", ".join(map(_network, networks))} if networks else {}),
            "settings": settings,
            "seed": record.problem.to_json().get("seed", "not recorded"),
            "versions": _versions(record.versions),
        },
    }


def source_of_run(run: RunRecord) -> dict[str, Any]:
    manifest = run.manifest
    settings = {
        **manifest.settings.model_dump(mode="json", exclude={"seed", "options"}),
        **manifest.settings.options,
    }
    return {
        "title": f"{manifest.name} ({manifest.format})",
        "lines": {
            "checkpoints sha256": ", ".join(f"{k} {v}" for k, v in run.checkpoints.items()) or "none",
            "started": manifest.created,
            "data fingerprint": manifest.data.fingerprint or "not recorded",
            "settings": ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None),
            "seed": manifest.settings.seed,
            "versions": _versions(manifest.versions),
        },
    }


def provenance(runs: Sequence[RunRecord], records: Sequence[Analysis | ClientsRecord]) -> dict[str, Any]:
    """Return the provenance of a page; of a path only the file's name, since a page is sent around."""
    made = made_from(records)
    about = [
        {"manifest": run.manifest.model_dump(mode="json"), "checkpoints": run.checkpoints} for run in runs
    ]
    return {**made, "analyses": [_without_folders(analysis) for analysis in made["analyses"]], "runs": about}


def _without_folders(analysis: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: {**value, "path": PurePath(str(value.get("path"))).name}
        if key in ("checkpoint", "directions_of") and value
        else value
        for key, value in analysis.items()
    }


def _network(checkpoint: CheckpointEntry) -> str:
    return f"{label(checkpoint)} {checkpoint.sha256}"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or "not recorded"
