"""Functions of the user's own, named on the command line as MODULE:FUNCTION."""

import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any

from fedscope.errors import UserError, suggestion

EXAMPLES = {
    "--model": "mymodels:resnet",
    "--data": "mydata:batches",
    "--loss": "mylosses:loss",
    "--metric": "mymetrics:error",
}
_INSTALLED = (
    Path(__file__).parent,
    *(Path(sysconfig.get_paths()[kind]) for kind in ("stdlib", "purelib", "platlib")),
)


def imported(reference: str, flag: str) -> Any:
    """Return what ``MODULE:NAME`` names; modules of the working directory are found too.

    Raises:
        UserError: it is no such reference, or the module fails or has no such name.
    """
    module, _, name = reference.partition(":")
    if not (module and name):
        raise UserError(f"{flag} takes MODULE:FUNCTION, such as {EXAMPLES[flag]}, not {reference!r}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = import_module(module)
    except Exception as error:  # whatever the user's module raises
        raise UserError(f"{flag} {reference}: {reason(error)}") from error
    if not hasattr(found, name):
        raise UserError(f"{flag} {reference}: {module} has no {name!r}{suggestion(name, vars(found))}")
    return getattr(found, name)


def called(reference: str, flag: str) -> Any:
    """Call the function at ``MODULE:FUNCTION`` without arguments and return its result.

    Raises:
        UserError: as :func:`imported`; or the function fails.
    """
    function = imported(reference, flag)
    try:
        return function()
    except Exception as error:  # whatever the user's function raises
        raise UserError(f"{flag} {reference}: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return an exception as one line, with the last line of the user's own code that it passed."""
    return f"{type(error).__name__}: {error}{_place(error)}"


def _place(error: Exception) -> str:
    """Return the file and line of the last frame in no installed package, in brackets; or nothing."""
    own = [
        (Path(frame.filename), frame.lineno)
        for frame in extract_tb(error.__traceback__)
        if not (frame.filename.startswith("<") or any(map(Path(frame.filename).is_relative_to, _INSTALLED)))
    ]
    if not own:
        return ""
    file, line = own[-1]
    return f" ({file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}, line {line})"
