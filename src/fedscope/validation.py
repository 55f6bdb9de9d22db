"""JSON as typed, frozen records that return it as it was read, and refusals in plain words."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from fedscope.errors import UserError, suggestion

Node = Mapping[str, Any]
_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "a text",
    "array": "a list",
    "object": "a table of fields",
}
_BOUNDS = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "up to",
    "exclusiveMaximum": "below",
}


class Plain(BaseModel):
    """An object of a record: its fields as attributes, and the JSON that it was read from.

    Keys that no field names are kept. A field with a default may be absent; the
    default is the meaning of its absence.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    _json: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep_json(cls, content: Any, check: ModelWrapValidatorHandler[Self]) -> Self:
        found = check(content)
        if isinstance(content, Mapping):
            found._json = content
        return found

    @classmethod
    def read(cls, content: Any, what: str = "the record") -> Self:
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise UserError(f"{what} is not whole: {refusal(error, cls.model_json_schema())}") from error

    def to_json(self) -> dict[str, Any]:
        """Return the JSON: the same keys in the same order, and null for NaN."""
        return dict(self._json)

    def edited(self, **changes: Any) -> Self:
        return type(self).model_validate({**self._json, **changes})


def refusal(error: ValidationError, schema: Node, *, flags: bool = False) -> str:
    """Return what is wrong with the first field of ``error``; ``flags``: fields are options, ``--name``."""
    first = _first(error.errors(include_url=False))
    tags = [part for part in first["loc"] if str(part).startswith("fedscope/")]
    loc = [part for part in first["loc"] if part not in tags]
    name = ".".join(map(str, loc))
    where = f"--{name.replace('_', '-')}" if flags and name else name
    if first["type"] == "value_error":
        text = first["msg"].removeprefix("Value error, ")
        return f"{where}: {text}" if where else text
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "union_tag_not_found":
        return "it has no schema"
    if first["type"] == "union_tag_invalid":
        return f"its schema is {first['ctx']['tag']!r}, not one of {first['ctx']['expected_tags']}"
    if first["type"] == "extra_forbidden":
        known = _node(schema, [*tags, *loc[:-1]]).get("properties", {})
        return f"{where} is no field of it{suggestion(str(loc[-1]), known)}"
    takes = _takes(_node(schema, [*tags, *loc]))
    found = first["input"]
    return (
        f"{where or 'it'} takes {takes}, not {f'{found:g}' if isinstance(found, float) else repr(found):.60}"
    )


def _first(faults: Sequence[ErrorDetails]) -> ErrorDetails:
    """Return the fault to tell: before a missing field a key beside it that no field has."""
    first = faults[0]
    if first["type"] != "missing":
        return first
    beside = (
        one for one in faults if one["type"] == "extra_forbidden" and one["loc"][:-1] == first["loc"][:-1]
    )
    return next(beside, first)


def _node(schema: Node, loc: Sequence[int | str]) -> Node:
    node = schema
    for part in loc:
        node = _resolved(schema, node)
        tagged = node.get("discriminator", {}).get("mapping", {})
        if part in tagged:
            node = {"$ref": tagged[part]}
            continue
        inner = [node.get("properties", {}).get(part), node.get("items"), node.get("additionalProperties")]
        node = next((one for one in inner if isinstance(one, Mapping)), {})
    return _resolved(schema, node)


def _resolved(schema: Node, node: Node) -> Node:
    """Return the node that a reference leads to, or the other type of a field that may be null."""
    while True:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
            continue
        filled = [one for one in node.get("anyOf", ()) if one.get("type") != "null"]
        if not filled:
            return node
        node = filled[0]


def _takes(node: Node) -> str:
    if "enum" in node:
        return f"one of {', '.join(map(str, node['enum']))}"
    if "const" in node:
        return str(node["const"])
    bounds = " and ".join(f"{word} {node[key]:.20g}" for key, word in _BOUNDS.items() if key in node)
    if bounds and "minimum" in node and "and" not in bounds:
        bounds += " up"
    return f"{_KINDS[node.get('type', 'object')]} {bounds}".strip()
