"""A group that imports a command only when it is called, so that a help page costs nothing."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from fedscope.cli.options.command import Command, CommandGroup


class LazyGroup(CommandGroup):
    """A group some of whose commands live in modules of ``fedscope.cli`` and are imported on use.

    ``lazy`` has a module and a line of help for each name, in the order a newcomer needs them.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return [*super().list_commands(ctx), *self.lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command; of a lazy one name and line of help alone, for help and completion."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        return Command(cmd_name, help=self.lazy[cmd_name][1])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named first, imported if need be."""
        name, found, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.lazy:
            found = import_module(f"fedscope.cli.{self.lazy[name][0]}").command
        return name, found, rest
