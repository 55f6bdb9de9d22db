"""Names of a package that are imported when they are first used, and modules that can be called.

A package states its names for type checkers, ``from MODULE import NAME as NAME`` under ``if TYPE_CHECKING:``.
The same lines say where a name is to be found when it is used.
"""

import ast
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class DeferredNames:
    """The names that a package states, which is being imported."""

    def __init__(self, package: str) -> None:
        self._package = package
        loader: Any = sys.modules[package].__loader__
        blocks = [node for node in ast.parse(loader.get_source(package)).body if isinstance(node, ast.If)]
        stated = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        self._modules = {name.name: node.module for node in stated for name in node.names}

    @property
    def all(self) -> list[str]:
        return sorted(self._modules)

    def get(self, name: str) -> Any:
        module = self._modules.get(name)
        if module is None:
            raise AttributeError(f"module {self._package!r} has no attribute {name!r}")
        found = getattr(import_module(module), name)
        setattr(sys.modules[self._package], name, found)
        return found


class CallableModule(ModuleType):
    """A module whose call is that of a function of another one, which is imported when it is called."""

    _called: tuple[str, str]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
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
