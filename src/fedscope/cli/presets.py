"""`fedscope presets`: the papers' experiments, and how to run each."""

from typing import Any

import click

from fedscope.cli.options import completion, shared
from fedscope.cli.options.command import CommandGroup
from fedscope.cli.terminal import console
from fedscope.workflows import catalogues


@click.group("presets", cls=CommandGroup)
def command() -> None:
    """List the papers' experiments, or show one: settings, methods, and what in it is provisional."""


@command.command("list")
@shared.json_target
def list_presets(json_target: str | None) -> None:
    """List all presets; run one with `fedscope train --preset NAME --method …`."""
    found = list(catalogues.cached("preset", _facts).values())
    if console.in_json(json_target, found):
        return
    rows = [
        [
            preset["name"],
            preset["table"],
            str(preset["settings"]["dataset"]),
            str(preset["settings"]["model"]),
            f"{preset['settings']['rounds']} × {preset['settings']['epochs']}",
            ", ".join(preset["provisional"]),
        ]
        for preset in found
    ]
    columns = ["preset", "table", "data", "model", "rounds × epochs", "provisional"]
    console.print_table("Presets", columns, rows, text_columns=6, drop=columns[:0:-1])


@command.command(
    "show", examples={"fedscope presets show fedalign/t1": "its settings, and the command of each method"}
)
@click.argument("name", shell_complete=completion.names_of("preset"))
@shared.json_target
def show(name: str, json_target: str | None) -> None:
    """Show a preset, and the command of each of its methods."""
    catalogues.check("preset", name)
    known = catalogues.cached("preset", _facts)
    if name not in known:
        from fedscope.federated.setup.paper_presets import preset

        preset(name)
    found = known[name]
    if console.in_json(json_target, found):
        return
    settings, unknown = {**found["settings"], **found["options"]}, found["provisional"]
    rows = [
        [key, str(value), "" if key not in unknown else f"provisional: {unknown[key]}"]
        for key, value in settings.items()
        if value is not None
    ]
    rows += [
        [f"{key} with {method}", str(value), ""]
        for method, more in found["when"].items()
        for key, value in more.items()
    ]
    rows += [[f"{key} under --reading code", str(value), ""] for key, value in found["code"].items()]
    rows += [["seeds", ", ".join(map(str, found["seeds"])), ""]]
    title = f"{found['name']}: {found['table']} of {found['source']}"
    console.print_table(title, ["", "", ""], rows, text_columns=3)
    for line in found["commands"]:
        print(line)


def _facts() -> dict[str, dict[str, Any]]:
    from fedscope.federated.setup.paper_presets import presets

    return {name: preset.describe() for name, preset in presets().items()}
