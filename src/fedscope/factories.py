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
    "--log": "mylogs:lines",
}
_INSTALLED = (
    Path(__file__).parent,
    *(Path(sysconfig.get_paths()[kind]) for kind in ("stdlib", "purelib", "platlib")),
)


def imported(reference: str, flag: str) -> Any:
    """Return what ``MODULE:NAME`` names; modules of the working directory are found too."""
    module, _, name = reference.partition(":")
    if not (module and name):
        raise UserError(f"{flag} takes MODULE:FUNCTION, such as {EXAMPLES[flag]}, not {reference!r}")
    if module.endswith(".py"):
        dotted = ".".join(Path(module).with_suffix("").parts)
        raise UserError(f"{flag} takes a module, not a file: write {dotted}:{name}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        where = f"; looked for in {Path.cwd()} and among the installed packages" * (error.name == module)
        raise UserError(f"{flag} {reference}: {reason(error)}{where}") from error
    except Exception as error:  # whatever the user's module raises
        raise UserError(f"{flag} {reference}: {reason(error)}") from error
    if not hasattr(found, name):
        raise UserError(f"{flag} {reference}: {module} has no {name!r}{suggestion(name, vars(found))}")
    return getattr(found, name)


def called(reference: str, flag: str) -> Any:
    function = imported(reference, flag)
    try:
        return function()
    except Exception as error:  # whatever the user's function raises
        raise UserError(f"{flag} {reference}: {reason(error)}") from error


def reason(error: BaseException, module: str = "") -> str:
    """Return an exception as one line, with the last line of the user's code or of ``module``'s package."""
    return f"{type(error).__name__}: {error}{_place(error, module)}"


def _place(error: BaseException, module: str) -> str:
    mine = _files(module)
    frames = [(Path(frame.filename), frame.lineno) for frame in extract_tb(error.__traceback__)]
    own = [(file, line) for file, line in frames if _is_own(file, mine)]
    if not own:
        return ""
    file, line = own[-1]
    return f" ({file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}, line {line})"


def _is_own(file: Path, mine: Path | None) -> bool:
    if str(file).startswith("<"):
        return False
    return bool(mine and file.is_relative_to(mine)) or not any(map(file.is_relative_to, _INSTALLED))


def _files(module: str) -> Path | None:
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None)
    if file is None:
        return None
    return Path(file).parent if hasattr(top, "__path__") else Path(file)
