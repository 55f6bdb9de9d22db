"""How much a command says beside its results: `-q`, `-v` and `--debug`, which every command takes."""

from dataclasses import dataclass

import click


@dataclass
class Verbosity:
    """What the command line that runs was asked to say."""

    quiet: bool = False  # no progress, no notes
    verbose: bool = False  # details too
    debug: bool = False  # tracebacks too


CURRENT = Verbosity()


def reset() -> None:
    """Say the usual again, for the next command line of this process."""
    CURRENT.quiet = CURRENT.verbose = CURRENT.debug = False


def _raise(_context: click.Context, option: click.Parameter, given: bool) -> None:
    if given:  # what stands before the command's name holds for the command
        setattr(CURRENT, str(option.name), True)


def _flag(*names: str, help: str) -> click.Option:
    return click.Option(
        list(names), is_flag=True, is_eager=True, expose_value=False, callback=_raise, help=help
    )


FLAGS = (
    _flag("-v", "--verbose", help="Say more: every note, and all columns of a table."),
    _flag("-q", "--quiet", help="Print results and errors only."),
    _flag("--debug", help="Print the traceback of an error."),
)
