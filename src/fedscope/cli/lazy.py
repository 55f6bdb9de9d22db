"""A group that imports a command only when it is called, so that a help page costs nothing."""

from collections.abc import Mapping
from importlib import import_module

import click

from fedscope.cli.command import Group


class LazyGroup(Group):
    """A group some of whose commands live in modules of ``fedscope.cli`` and are imported on use.

    ``lazy`` has a module and a line of help for each name, in the order a newcomer needs them.
    """

    def __init__(self, *args: object, lazy: Mapping[str, tuple[str, str]], **kwargs: object):
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return [*super().list_commands(ctx), *self.lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, imported if need be."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        command: click.Command = import_module(f"fedscope.cli.{self.lazy[cmd_name][0]}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any."""
        own = [(name, found.get_short_help_str(120)) for name, found in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*sorted(own), *((name, help) for name, (_, help) in self.lazy.items())])
