"""Modules that are imported when a test uses them, not by every process that collects the tests."""

from importlib import import_module
from typing import Any


class Lazy:
    """Stands for a module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
