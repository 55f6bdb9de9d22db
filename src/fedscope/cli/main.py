"""The command line's way in and out: every fault becomes an exit code.

0 done; 2 the user can mend it (one line, no traceback); 1 a fault of ours; 130 interrupted. Nothing that
takes time is imported before :func:`run` has said what Ctrl-C does.
"""

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from types import FrameType

COMPLETE = "_FEDSCOPE_COMPLETE"  # set by the shell's completion script
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # how threads wait for each other, if the user says so
SPINS = "10000"  # some 50 µs; by default it is milliseconds, in which nobody else has the core


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    signal.signal(signal.SIGINT, interrupt)
    if not any(name in os.environ for name in WAITING):
        os.environ["GOMP_SPINCOUNT"] = SPINS  # read when PyTorch is loaded
    from fedscope.cli.terminal import readable

    readable.use()
    sys.meta_path.insert(0, _Loading())
    sys.exit(call(sys.argv[1:] if arguments is None else arguments))


class _Loading:
    """Says on a terminal that PyTorch is being loaded, which takes seconds, just before it is."""

    told = False

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        """Find nothing."""
        if name == "torch" and not self.told and sys.stderr.isatty():
            self.told = True
            from fedscope.cli.terminal import console

            console.note("loading PyTorch …")


def interrupt(_signal: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; in the middle of an import, which would swallow or garble it, end at once."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            show_cursor = b"\x1b[?25h" if os.isatty(2) else b""  # a progress bar hides it
            os.write(2, show_cursor + b"Error: interrupted\n")
            os._exit(130)
        frame = frame.f_back
    raise KeyboardInterrupt


def call(arguments: Sequence[str]) -> int:
    """Run the command line on ``arguments`` and return the exit code."""
    import click

    from fedscope.cli.root import main
    from fedscope.cli.terminal import console, verbosity
    from fedscope.errors import DerivativeWarning, UserError, mend

    verbosity.reset()
    warnings.filterwarnings("ignore", category=DerivativeWarning)  # tables say it
    try:
        if COMPLETE in os.environ:
            from click.shell_completion import shell_complete

            return shell_complete(main, {}, "fedscope", COMPLETE, os.environ[COMPLETE])
        with main.make_context("fedscope", list(arguments)) as context, console.PULSE.running():
            main.invoke(context)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except UserError as error:
        return _fail(str(error), 2)
    except click.UsageError as error:
        from fedscope.cli.options.command import understood

        return _fail(understood(error), 2)
    except click.ClickException as error:
        return _fail(error.format_message(), 2)
    except click.exceptions.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as error:
        return _fail(
            f"interrupted; {error}" if str(error) else "interrupted; run the same command again", 130
        )
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except Exception as error:
        if isinstance(error, OSError) and (how := mend(error)):
            return _fail(f"{error.filename or 'a file'}: {error.strerror}; {how}", 2)
        import traceback

        traceback.print_exc()
        return _fail("this is a fault of fedscope, please report it with the lines above", 1)
    return 0


def _fail(message: str, code: int) -> int:

    from fedscope.cli.terminal.readable import safe
    from fedscope.cli.terminal.verbosity import CURRENT

    if CURRENT.debug and code == 2:
        import traceback

        traceback.print_exc()
    print(f"Error: {safe(' '.join(message.split()))}", file=sys.stderr)
    return code
