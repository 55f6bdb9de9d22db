"""Where every panel comes from: checkpoints by their hashes, settings, seeds, versions."""

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from fedscope.figures.provenance import made_from
from fedscope.figures.text.labels import label
from fedscope.report.subjects import Record


def source_of_analysis(record: Record) -> dict[str, Any]:
    """Return what made an analysis, as lines for a reader: each a name and its value."""
    asked = {**record["problem"], "directions": record.get("directions")}
    settings = ", ".join(
        f"{name} {value}" for name, value in asked.items() if value is not None and name != "seed"
    )
    networks = record.get("networks") or []
    return {
        "title": f"{label(record['checkpoint'])} ({record['schema']})",
        "lines": {
            "checkpoint sha256": record["checkpoint"]["sha256"],
            **({"networks": ", ".join(map(_network, networks))} if networks else {}),
            "settings": settings,
            "seed": record["problem"].get("seed", "not recorded"),
            "versions": _versions(record.get("versions")),
        },
    }


def source_of_run(run: Record) -> dict[str, Any]:
    """Return what made a run's curves."""
    manifest = run["manifest"]
    settings = dict(manifest["settings"])
    seed, options = settings.pop("seed", "not recorded"), settings.pop("options", {})
    known = {name: value for name, value in {**settings, **options}.items() if value is not None}
    return {
        "title": f"{manifest['name']} ({manifest['format']})",
        "lines": {
            "checkpoints sha256": ", ".join(f"{k} {v}" for k, v in run.get("checkpoints", {}).items())
            or "none",
            "started": manifest["created"],
            "data fingerprint": manifest["data"].get("fingerprint") or "not recorded",
            "settings": ", ".join(f"{name} {value}" for name, value in known.items()),
            "seed": seed,
            "versions": _versions(manifest.get("versions")),
        },
    }


def provenance(runs: Sequence[Record], records: Sequence[Record]) -> dict[str, Any]:
    """Return the provenance of a page as plain data: analyses as in a figure's record, and the runs.

    Of a path only the file's name is kept: a page is sent around.
    """
    stripped = [
        {
            **record,
            "checkpoint": _without_folder(record["checkpoint"]),
            "networks": [_without_folder(one) for one in record.get("networks") or ()],
            **({"directions_of": _without_folder(lender)} if (lender := record.get("directions_of")) else {}),
        }
        for record in records
    ]
    about = [{"manifest": run["manifest"], "checkpoints": run.get("checkpoints", {})} for run in runs]
    return {**made_from(stripped), "runs": about}


def _without_folder(checkpoint: Record) -> dict[str, Any]:
    return {**checkpoint, "path": PurePath(str(checkpoint.get("path"))).name}


def _network(checkpoint: Record) -> str:
    return f"{label(checkpoint)} {checkpoint['sha256']}"


def _versions(versions: Record | None) -> str:
    return ", ".join(f"{name} {version}" for name, version in (versions or {}).items()) or "not recorded"
