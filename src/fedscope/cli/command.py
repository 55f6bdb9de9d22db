"""The commands of the command line: what all of them share."""

import click

from fedscope.cli.verbosity import FLAGS


class Command(click.Command):
    """A command that takes `-v`, `-q` and `--debug`."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, the shared ones last."""
        return [*super().get_params(ctx), *FLAGS]


class Group(Command, click.Group):
    """A group of such commands."""

    command_class = Command
