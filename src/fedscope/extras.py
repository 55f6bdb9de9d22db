"""Optional packages, each imported where it is used, and the extra of ``fedscope`` that installs it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version

from fedscope.errors import UserError


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Answer an import that fails inside with how to install ``extra``; ``what`` begins the message."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = str(error.name)
        if name.partition(".")[0] == "fedscope":
            raise
        raise UserError(f"{what} needs {name}: pip install 'fedscope[{extra}]'") from error


def versions(packages: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
