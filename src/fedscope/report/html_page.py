"""The one file from its sections: template, style, scripts and data, and a policy against any request.

The page loads nothing: its policy allows its own style, its own scripts by their hashes, and images in it. A
text that got into the page as a script would not run.
"""

import base64
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path, PurePath
from typing import Any

from matplotlib.figure import Figure

from fedscope import __version__
from fedscope.extras import needed
from fedscope.figures import style
from fedscope.figures.embedded_record import made_from
from fedscope.figures.text.labels import label
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.hessian_record import CheckpointEntry
from fedscope.records.landscape_record import LandscapeRecord
from fedscope.records.run_record import RunRecord
from fedscope.records.saved_records import Analysis
from fedscope.report.plotly_panels import typeset

with needed("report", "an HTML page"):  # here, so that nothing is measured in vain
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("look.js", "planes.js", "report.js")
DPI = 200  # of the pictures in the page


def render(context: Mapping[str, Any], data: Any, provenance: Any) -> str:
    scripts = [get_plotlyjs(), *((TEMPLATES / name).read_text(encoding="utf-8") for name in SCRIPTS)]
    about = _dumped(provenance, indent=1)
    return (
        _environment()
        .get_template("report.html")
        .render(
            **context,
            policy=_policy(scripts),
            css=Markup((TEMPLATES / "report.css").read_text(encoding="utf-8")),
            scripts=[Markup(script) for script in scripts],
            data=_embedded(data),
            provenance=_embedded(provenance),
            provenance_link="data:application/json;base64," + base64.b64encode(about.encode()).decode(),
            version=__version__,
        )
    )


def picture(figure: Figure) -> str:
    buffer = io.BytesIO()
    with style.paper_style():
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": f"fedscope {__version__}"})
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(TEMPLATES)
    found = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters["typeset"] = lambda words: Markup(typeset(str(words)))
    return found


def _policy(scripts: list[str]) -> str:
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embedded(content: Any) -> Markup:
    text = _dumped(content)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _dumped(content: Any, indent: int | None = None) -> str:
    separators = (",", ":") if indent is None else None
    return json.dumps(content, allow_nan=False, ensure_ascii=False, indent=indent, separators=separators)


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
