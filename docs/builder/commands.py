"""The reference of the command line, from the commands themselves: each option where ``--help`` has it."""

from collections.abc import Iterator
from importlib import import_module

import click
from rich_click import RichOptionPanel

from builder.blocks import Blocks
from builder.markdown import escaped, fence, table
from fedscope.cli.options.command import Command
from fedscope.cli.root import COMMANDS, main

FOLDER = "reference/commands"
SHARED = ("--verbose", "--quiet", "--debug", "--help")


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield every command, a group before its own, with the context that its help is written in."""
    root = click.Context(main, info_name="fedscope")
    for name, (module, _) in COMMANDS.items():
        command = import_module(f"fedscope.cli.{module}").command
        context = click.Context(command, info_name=name, parent=root)
        yield name, command, context
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                found = command.get_command(context, inner)
                if found is not None:
                    yield f"{name} {inner}", found, click.Context(found, info_name=inner, parent=context)


def titles() -> dict[str, str]:
    """Return the pages by path, with their titles: one for each command of ``fedscope``."""
    return {f"{FOLDER}/{name}.md": name for name in COMMANDS}


def pages(blocks: Blocks) -> dict[str, str]:
    """Return the pages by path."""
    found: dict[str, list[str]] = {}
    for name, command, context in commands():
        top, _, inner = name.partition(" ")
        page = found.setdefault(f"{FOLDER}/{top}.md", [])
        page.append(section(command, context, inner, blocks))
    return {path: "\n".join(parts) for path, parts in found.items()}


def index() -> str:
    """Return a table of all commands."""
    rows = []
    for name, command, _ in commands():
        top, _, inner = name.partition(" ")
        anchor = f"#{inner}" if inner else ""
        summary = command.get_short_help_str(limit=200)
        rows.append([f"[`fedscope {name}`](commands/{top}.md{anchor})", escaped(summary)])
    return table(["command", "what it does"], rows)


def options(name: str) -> dict[str, str]:
    """Return the help of a command's options, by the names of what they set."""
    command, context = next((command, context) for called, command, context in commands() if called == name)
    return {
        param.name: " ".join((param.help or f"see `{param.opts[0]}`").split()).partition(" [default")[0]
        for param in command.get_params(context)
        if isinstance(param, click.Option) and param.name
    }


def section(command: click.Command, context: click.Context, inner: str, blocks: Blocks) -> str:
    """Return a command's part of its page; ``inner`` is its name within a group, empty for the page's own."""
    level = "##" if inner else "#"
    anchor = f" {{ #{inner} }}" if inner else ""
    parts = [f"{level} `{context.command_path}`{anchor}\n"]
    parts += [escaped(paragraph) + "\n" for paragraph in _paragraphs(command.help or "")]
    parts.append(fence("text", _usage(command, context)))
    options = [
        param
        for param in command.get_params(context)
        if isinstance(param, click.Option) and not param.hidden and param.opts[0] not in SHARED
    ]
    for title, members in _grouped(command, options):
        parts.append(f"{level}# {title}\n")
        parts += [_option(param, context, f"{level}##", inner) for param in members]
    parts += _examples(command, context, blocks, f"{level}#")
    return "\n".join(parts)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.replace("\b", "").split("\n\n") if part.strip()]


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _grouped(command: click.Command, options: list[click.Option]) -> Iterator[tuple[str, list[click.Option]]]:
    """Yield the groups of ``--help``, each option once, in the first group that has it."""
    left = {param.opts[0]: param for param in options}
    panels = command.panels if isinstance(command, Command) else []
    for panel in panels:
        flags = [flag for flag in panel.options if flag in left] if isinstance(panel, RichOptionPanel) else []
        if flags:
            yield str(panel.name), [left.pop(flag) for flag in flags]
    if left:
        yield ("Other options" if panels else "Options"), list(left.values())


def _option(param: click.Option, context: click.Context, level: str, inner: str) -> str:
    record = param.get_help_record(context)
    assert record is not None
    names, text = record
    anchor = f"{inner}{param.opts[0]}" if inner else param.opts[0]
    allowed = isinstance(param.type, click.Choice)
    said = [escaped(" ".join(text.split()))] if text else []
    if allowed and not said:
        said.append("One of these.")
    if param.multiple:
        said.append("May be given several times.")
    return f"{level} `{names}` {{ #{anchor} }}\n\n{' '.join(said)}\n"


def _examples(command: click.Command, context: click.Context, blocks: Blocks, level: str) -> list[str]:
    own = command.examples if isinstance(command, Command) else {}
    lines = [f"{line}  # {purpose}" for line, purpose in own.items()]
    ran = blocks.commands(context.command_path) if not isinstance(command, click.Group) else []
    found = [f"{level} Examples\n", fence("sh", "\n".join(lines))] if lines else []
    if ran:
        places = ", ".join(f"[{title}](../../{path})" for path, title in ran)
        found.append(f"In use, in pages whose commands the tests run: {places}.\n")
    return found
