"""Options of a command that are fields of its request: what stands beside the fields makes them."""

import re
from collections.abc import Mapping, Sequence
from math import isinf
from types import EllipsisType
from typing import Any, Literal, get_args, get_origin

import click

from fedscope.cli.options.shared import Decorator
from fedscope.errors import UserError
from fedscope.workflows.option_fields import OptionField, option_fields

Groups = Mapping[str, Sequence[str | EllipsisType]]


class CountOr(click.ParamType[int | str | None]):
    """A number from 1 on, or a word such as ``all``, which stands for itself or for None."""

    def __init__(self, word: str, *, none: bool = False) -> None:
        self.name, self._word, self._value = word, word, None if none else word

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str | None:
        """Return the number, or what the word stands for."""
        if value == self._word:
            return self._value
        if not re.fullmatch("[0-9]{1,12}", str(value)) or int(value) < 1:
            flag = param.opts[0] if param else "it"
            raise UserError(f"{flag} takes a number from 1 up, or {self._word}, not {value!r}")
        return int(value)


def options_of(request: type[Any], without: Sequence[str] = ()) -> Decorator:
    """Return what adds a request's options, but for groups, to a command, which gets them by their names."""

    def add(function: Any) -> Any:
        for one in reversed(option_fields(request)):
            function = function if one.group in without else _option(one)(function)
        return function

    return add


def groups_of(request: type[Any], own: Groups) -> dict[str, list[str]]:
    """Return the groups of a command's help: ``...`` stands for the request's options of that group."""
    found = dict[str, list[str]]()
    for title, flags in own.items():
        of_request = [one.flag for one in option_fields(request) if one.group == title]
        found[title] = [name for flag in flags for name in (of_request if flag is ... else [flag])]
    return found


def _option(one: OptionField) -> Decorator:
    flag, default, several = one.flag, one.default, get_origin(one.kind) is tuple
    shown = default is not False and default not in (None, (), "")
    if one.kind is bool and default:
        flag = f"{flag}/--no-{one.parameter.replace('_', '-')}"
    return click.option(
        flag, one.parameter, type=_type(one), is_flag=one.kind is bool, default=default, show_default=shown,
        multiple=several, metavar=one.metavar, help=one.help or None,
    )  # fmt: skip


def _type(one: OptionField) -> Any:
    """Return click's type; of a number that may be None, as in ``N|all``, all stands for None."""
    kind, bounds = one.kind, one.bounds
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if one.metavar == "N|all":
        return CountOr("all", none=True)
    if kind not in (int, float):
        return bool if kind is bool else str
    least, most = max(bounds.least, bounds.above), min(bounds.most, bounds.below)
    low, high = (None if isinf(end) else kind(end) for end in (least, most))
    if kind is int:
        return click.IntRange(low, high)
    return click.FloatRange(low, high, min_open=least == bounds.above, max_open=most == bounds.below)
