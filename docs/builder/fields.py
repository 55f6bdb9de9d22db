"""The fields of the JSON records: their types in words, and their meanings from the sources."""

import ast
import inspect
import io
import re
import textwrap
import tokenize
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fedscope.records import number_types

ALIASES: list[tuple[Any, str]] = [
    (number_types.Number, "number, or null"),
    (number_types.Freedom, "number; null: infinite"),
    (number_types.Count, "whole number from 0"),
    (number_types.Interval, "[number, number]"),
    (number_types.Grid, "numbers on the grid, a list per row"),
]
WORDS = {
    float: "number",
    int: "whole number",
    str: "text",
    bool: "true or false",
    Any: "anything",
    type(None): "null",
}


@dataclass(frozen=True)
class Field:
    """A field of a record as its reader sees it."""

    name: str  # in JSON
    words: str  # its type, as Markdown
    meaning: str
    unit: str  # empty: none
    models: tuple[type[BaseModel], ...]  # that its type names


def fields(model: type[BaseModel], told: Mapping[str, str]) -> list[Field]:
    """Return a model's fields in their order, inherited ones first.

    Args:
        model: of a record.
        told: meanings of fields without a comment.

    Raises:
        ValueError: one has no meaning in the sources.
    """
    hints = get_type_hints(model, include_extras=True)
    return [_field(model, name, info, hints[name], told) for name, info in model.model_fields.items()]


def _field(model: type[BaseModel], name: str, info: FieldInfo, hint: Any, told: Mapping[str, str]) -> Field:
    meaning = next((said[name] for kind in model.__mro__ if (said := meanings(kind)).get(name)), "")
    meaning = (meaning or told.get(name, "")).replace("None", "null")
    if not meaning:
        raise ValueError(f"{model.__module__}.{model.__name__}.{name} has no comment; say there what it is")
    text, unit = meaning, ""
    if meaning.endswith("]") and " [" in meaning and not meaning.endswith("[0, 1]"):
        text, _, unit = meaning.removesuffix("]").rpartition(" [")
    models: list[type[BaseModel]] = []
    words = _words(hint, models)
    return Field(info.alias or name, words, " ".join(text.split()), unit, tuple(dict.fromkeys(models)))


@cache
def meanings(kind: type) -> dict[str, str]:
    """Return what the comments at the fields of a class say, at the end of the line or on the lines above."""
    if kind.__module__.split(".")[0] in ("builtins", "pydantic", "typing"):
        return {}
    origin = getattr(kind, "__pydantic_generic_metadata__", {}).get("origin") or kind
    source = textwrap.dedent(inspect.getsource(origin))
    comments = {
        token.start[0]: (token.string.removeprefix("#").strip(), token.line.lstrip().startswith("#"))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.ClassDef)
    fields = [one for one in tree.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    return {ast.unparse(field.target): _comment(field, comments) for field in fields}


def _comment(field: ast.AnnAssign, comments: Mapping[int, tuple[str, bool]]) -> str:
    """Return a field's comment; ``comments`` has text and whether it stands alone, by line."""
    last = field.end_lineno or field.lineno
    if last in comments:
        return comments[last][0]
    lines = []
    above = field.lineno - 1
    while above in comments and comments[above][1]:
        lines.append(comments[above][0])
        above -= 1
    return " ".join(reversed(lines))


def _words(hint: Any, models: list[type[BaseModel]]) -> str:
    """Return a type in words; the models in it are added to ``models``."""
    for alias, words in ALIASES:
        if hint == alias:
            return words
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _words(inner[0], models)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        choices = [_words(one, models) for one in inner]
        return " or ".join(word for word in choices if word != "null" or "null" not in choices[0])
    if origin in (tuple, list):
        return f"list of: {_words(inner[0], models)}"
    if origin is dict:
        return f"object of: {_words(inner[1], models)}"
    if isinstance(hint, TypeVar):
        return "value"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        models.append(hint)
        return f"[{shown(hint)}](#{anchor(hint)})"
    return WORDS.get(hint, str(hint))


def shown(model: type[BaseModel]) -> str:
    """Return a model's name as the pages show it."""
    generic = getattr(model, "__pydantic_generic_metadata__", {})
    if not generic.get("args"):
        return model.__name__
    inner = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", _words(generic["args"][0], []))
    return f"{generic['origin'].__name__} of {inner}"


def anchor(model: type[BaseModel]) -> str:
    """Return the anchor of a model on its page."""
    return re.sub(r"\W+", "-", shown(model).lower())
