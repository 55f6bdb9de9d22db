"""`fedscope`: the command line, which turns every fault into an exit code.

0 done; 2 the user can mend it (one line, no traceback); 1 a fault of ours; 130 interrupted.
"""

import errno
import sys
import traceback
from collections.abc import Sequence

import click

from fedscope import __version__
from fedscope.cli import verbosity
from fedscope.cli.lazy import LazyGroup
from fedscope.errors import UserError

COMMANDS = {
    "train": ("train", "Train a federated method and register its checkpoints."),
    "hessian": ("hessian", "Measure the curvature of a checkpoint."),
    "plot-landscape": ("plot_landscape", "Draw the loss landscape around checkpoints."),
    "plot-hessian": ("plot_hessian", "Draw spectra and clients' matrices from records of `hessian`."),
    "report": ("report", "Make one interactive HTML file of runs: metrics, curves, landscapes, spectra."),
    "presets": ("presets", "List the papers' experiments, or show one."),
    "methods": ("methods", "List the methods, or show one: objective, state, traffic, options, sources."),
    "models": ("models", "List the networks, or show one: source, input, layers, parameters, costs."),
    "data": ("data", "List the data sets, show one, check that one is here and whole, draw a partition."),
    "runs": ("runs", "List, show, compare, verify, export, import and add runs of the registry."),
    "figures": ("figures", "Rebuild the papers' tables and figures: list, build, index."),
    "demo": ("demo", "Train two methods, measure and draw them, in a few minutes."),
}
BARRED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS)


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="fedscope")
def main() -> None:
    """How flat, and how consistent across clients, are the minima of federated-learning methods?"""


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(call(sys.argv[1:] if arguments is None else arguments))


def call(arguments: Sequence[str]) -> int:
    """Run the command line on ``arguments`` and return the exit code."""
    verbosity.reset()
    try:
        result = main.main(list(arguments), prog_name="fedscope", standalone_mode=False)
    except UserError as error:
        return _fail(str(error), 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _fail(
            "interrupted; run the same command again (train: with --resume and the run's --name)", 130
        )
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:
        if isinstance(error, OSError) and error.errno in BARRED:
            return _fail(f"{error.filename or 'a file'}: {error.strerror}; make room or give access", 2)
        traceback.print_exc()
        return _fail("this is a fault of fedscope, please report it with the lines above", 1)
    return result if isinstance(result, int) else 0


def _fail(message: str, code: int) -> int:
    from fedscope.cli.console import safe

    if verbosity.CURRENT.debug and code == 2:
        traceback.print_exc()
    click.echo(f"Error: {safe(' '.join(message.split()))}", err=True)
    return code
