"""The commands of the command line: what all of them share, and groups that import a command on use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich_click import RichCommand, RichGroup, RichOptionPanel

from fedscope.cli.options.shared import flags_given
from fedscope.cli.terminal.readable import readable
from fedscope.cli.terminal.verbosity import FLAGS
from fedscope.errors import UserError, suggestion
from fedscope.workflows.option_fields import Rule, check
from fedscope.workflows.requests import LISTED

if TYPE_CHECKING:
    from rich_click import RichContext, RichHelpFormatter

OptionRule = Rule[dict[str, Any]]  # of the parameters' values, by name
HELP = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 110,
    "rich_help_config": {
        "theme": "default-slim",
        "options_table_column_types": ["opt_all_metavar", "help"],
        "options_table_help_sections": ["help", "required", "default"],
        "append_metavars_help_string": "{}",
        "default_string": r"\[default: {}]",
    },
}


OTHERWISE = {  # what other programs call it
    "rm": "delete", "remove": "delete", "ls": "list", "cat": "show", "info": "show", "describe": "show",
    "compare": "diff", "upload": "push", "download": "pull", "fit": "train",
    "help": "--help", "version": "--version",
}  # fmt: skip


def understood(error: click.UsageError) -> str:
    """Return what click says of a command line, and how to mend it."""
    text, context = error.format_message().removesuffix("."), error.ctx
    if context is None:
        return text
    if isinstance(error, click.NoSuchOption) and isinstance(context.command, CommandGroup):
        return f"{text.split('. Did')[0]} before a command; give it behind the command"
    if isinstance(error, click.NoSuchOption) and not error.possibilities:
        return f"{text}; `{context.command_path} --help` lists them"
    if isinstance(error, click.MissingParameter) or "unexpected extra argument" in text:
        named = any("--name" in param.opts for param in context.command.params)
        mend = " (a run is named by --name)" if named and "unexpected" in text else ""
        words = [context.command_path, *context.command.collect_usage_pieces(context)]
        if isinstance(lacking := getattr(error, "param", None), click.Option):
            words += [lacking.opts[0], lacking.make_metavar(context)]
        return f"{text}{mend}; the command is `{' '.join(words)}`"
    return text


class Command(RichCommand):
    """A command whose help has groups of options and examples, and that takes `-v`, `-q` and `--debug`.

    Args:
        groups: titles, each with flags of the command, in the order of the help; the other options come last.
        examples: command lines, each with what it is for.
        rules: when its own options have an effect. Given on the command line without one they are refused;
            a value from a default, the environment or a file is never, nor an option that a ``--no-…`` after
            it takes back: a command may be run again with more options.
    """

    def __init__(
        self,
        *args: Any,
        groups: Mapping[str, Sequence[str]] | None = None,
        examples: Mapping[str, str] | None = None,
        rules: Sequence[OptionRule] = (),
        **kwargs: Any,
    ):
        super().__init__(*args, **kwargs)
        self.panels = [RichOptionPanel(title, options=list(flags)) for title, flags in (groups or {}).items()]
        self.examples, self.rules = examples or {}, rules
        for param in self.params:
            if isinstance(param.type, click.IntRange | click.FloatRange) and param.metavar is None:
                param.metavar = param.type.name.split()[0].upper()  # not click's INTEGER RANGE

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, the shared ones last."""
        return [*super().get_params(ctx), *FLAGS]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; an option of ``BARE`` may stand without its value."""
        for flag in BARE:
            if any(flag in param.opts for param in self.params):
                args = with_value(args, flag)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, unless an option of its own that was given has no effect."""
        for param in self.params:
            value = ctx.params.get(str(param.name))
            if isinstance(param.type, click.FloatRange) and value is not None and isnan(value):
                raise UserError(f"{param.opts[0]} takes a number, not nan")
        check(self.rules, flags_given(ctx), ctx.params)
        return super().invoke(ctx)

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, in the characters that the terminal has."""
        return readable(super().get_help(ctx))

    def format_epilog(self, ctx: RichContext, formatter: RichHelpFormatter) -> None:  # type: ignore[override]
        """Write the examples."""
        from rich.text import Text

        if self.examples:
            formatter.write(Text("Examples:"))
        for line, purpose in self.examples.items():
            formatter.write(Text(f"  {purpose}:", style="dim"))
            formatter.write(Text(f"    {line}", style="bold cyan"), soft_wrap=True)


class CommandGroup(Command, RichGroup):  # type: ignore[misc]  # as in rich-click itself
    """A group of such commands."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is named first, or say which one was probably meant."""
        name, known = args[0], self.list_commands(ctx)
        if not (name in known or name.startswith("-") or ctx.resilient_parsing):
            meant = OTHERWISE.get(name.lower(), "")
            hint = suggestion(meant if meant in known else name, known)
            if meant == "--help" or (meant == "--version" and not ctx.parent):
                hint = f"; did you mean {meant!r}?"
            hint = hint or f"; `{ctx.command_path} --help` lists them"
            raise click.UsageError(f"{ctx.command_path} has no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


def with_value(args: Sequence[str], flag: str) -> list[str]:
    """Return the arguments, in which ``flag`` gets its own value where none follows it.

    Of ``--json`` that is ``-``, unless ``-`` or the name of a .json file follows; of ``--influence`` a
    number, unless another follows.
    """
    value, takes = BARE[flag]
    result = list(args)
    for place in range(result.index("--") if "--" in result else len(result)):
        following = result[place + 1] if place + 1 < len(result) else ""
        if flag == "--json" == result[place] and Path(following).suffix in _TEXTS:
            raise click.UsageError(f"--json takes a .json file: name it so, or write --json={following}")
        if result[place] == flag and not takes(following):
            result[place] = f"{flag}={value}"
    return result


BARE: Mapping[str, tuple[str, Callable[[str], bool]]] = {
    "--json": ("-", lambda text: text == "-" or text.endswith(".json")),
    "--influence": (str(LISTED), lambda text: text.lstrip("-").isdecimal()),
}
_TEXTS = (".txt", ".csv", ".log", ".out", ".jsonl", ".yaml", ".yml")  # of no checkpoint and no run
"""Options that may stand without a value: the one that they have then, and which argument is a value."""


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
