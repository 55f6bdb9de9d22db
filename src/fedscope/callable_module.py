"""Modules that can be called: ``fedscope.landscape`` is a package, and the function of that name."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module whose call is that of a function of another one, which is imported when it is called."""

    _called: tuple[str, str]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        module, name = self._called
        return getattr(import_module(module), name)(*args, **kwargs)


def make_callable(module: str, function: str) -> None:
    """Let a loaded module be called as ``MODULE:FUNCTION`` is.

    The function is named and not imported: it stands on a higher floor than the module.
    """
    found = sys.modules[module]
    found.__class__ = CallableModule
    target, _, name = function.partition(":")
    found._called = (target, name)  # type: ignore[attr-defined]
