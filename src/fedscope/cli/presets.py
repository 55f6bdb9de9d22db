"""`fedscope presets`: the papers' experiments, and how to run each."""

import click

from fedscope.cli import console, options
from fedscope.cli.command import Group


@click.group("presets", cls=Group)
def command() -> None:
    """List the papers' experiments, or show one: settings, methods, and what in it is provisional."""


@command.command("list")
@options.json_target
def list_presets(json_target: str | None) -> None:
    """List all presets; run one with `fedscope train --preset NAME --method …`."""
    from fedscope.federated.presets import presets

    if console.in_json(json_target, [preset.describe() for preset in presets().values()]):
        return
    rows = [
        [
            preset.name,
            preset.table,
            str(preset.settings["dataset"]),
            str(preset.settings["model"]),
            f"{preset.settings['rounds']} × {preset.settings['epochs']}",
            ", ".join(preset.unknown),
        ]
        for preset in presets().values()
    ]
    columns = ["preset", "table", "data", "model", "rounds × epochs", "provisional"]
    console.print_table("Presets", columns, rows, text_columns=6, drop=columns[:0:-1])


@command.command(
    "show", examples={"fedscope presets show fedalign/t1": "its settings, and the command of each method"}
)
@click.argument("name")
@options.json_target
def show(name: str, json_target: str | None) -> None:
    """Show a preset, and the command of each of its methods."""
    from fedscope.federated.presets import preset

    found = preset(name)
    if console.in_json(json_target, found.describe()):
        return
    settings = {**found.settings, **found.options}
    rows = [
        [key, str(value), "" if key not in found.unknown else f"provisional: {found.unknown[key]}"]
        for key, value in settings.items()
        if value is not None
    ]
    rows += [
        [f"{key} with {method}", str(value), ""]
        for method, more in found.when.items()
        for key, value in more.items()
    ]
    rows += [[f"{key} under --reading code", str(value), ""] for key, value in found.code.items()]
    rows += [["seeds", ", ".join(map(str, found.seeds)), ""]]
    console.print_table(f"{found.name}: {found.table} of {found.source}", ["", "", ""], rows, text_columns=3)
    for line in found.commands():
        print(line)
