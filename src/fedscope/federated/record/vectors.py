"""Named vectors side by side in one row: the memory and the uploads of a client, the state of the server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from fedscope.errors import UserError

Scope = Literal["parameters", "model", "personal", "number"]
Start = Literal["zero", "initial", "own"]
SCOPES, STARTS = get_args(Scope), get_args(Start)


@dataclass(frozen=True)
class Vector:
    """A vector of a method: of the P parameters, the whole model (P+Q), its personal part, or one number.

    ``start`` is what it holds before its first update: zeros, the run's initial model, or a client's ``own``,
    which is that too unless its method asks for a ``random_start``. An upload may be sent instead of the
    model's parameters (``replaces_model``): then it is no traffic beyond them.
    """

    name: str
    scope: Scope = "parameters"
    start: Start = "zero"
    replaces_model: bool = False

    def __post_init__(self) -> None:
        """Refuse a vector of no known scope or start, or one that a model is too large for."""
        for field, value, allowed in (("scope", self.scope, SCOPES), ("start", self.start, STARTS)):
            if value not in allowed:
                raise UserError(
                    f"vector {self.name!r}: {field} is one of {', '.join(allowed)}, not {value!r}"
                )
        if self.start != "zero" and self.scope in ("personal", "number"):
            raise UserError(
                f"vector {self.name!r}: start={self.start!r} is a model, and the scope is {self.scope}; "
                "leave start out, or take the scope parameters or model"
            )


TRAINED = Vector("trained", start="initial")  # the model that clients train, where an average is kept


class RowLayout:
    """Where each of ``vectors`` lies in a row, for a model of P parameters, P+Q values, some personal."""

    def __init__(self, vectors: Sequence[Vector], parameters: int, model: int, personal: int = 0):
        sizes = {"parameters": parameters, "model": model, "personal": personal, "number": 1}
        self.vectors = tuple(vectors)
        self.names = [vector.name for vector in vectors]
        self.sizes = [sizes[vector.scope] for vector in vectors]
        self.width = sum(self.sizes)

    def split(self, rows: Tensor) -> dict[str, Tensor]:
        """Return the vectors in ``rows`` (…, width), each a view (…, size)."""
        return dict(zip(self.names, rows.split(self.sizes, -1), strict=True))

    def join(self, named: Mapping[str, Tensor], count: int) -> Tensor:
        """Return the rows (count, width) that hold the vectors, each (count, size) in ``named``."""
        return torch.cat([named[name] for name in self.names], -1) if self.names else torch.zeros(count, 0)

    def initial_row(self, initial: Tensor, own: Tensor | None = None) -> Tensor:
        """Return the row (width,) of a client or server that begins; the two models are (P+Q,)."""
        models = {"initial": initial, "own": initial if own is None else own.to(initial)}
        pieces = [
            models[vector.start][:size] if vector.start in models else initial.new_zeros(size)
            for vector, size in zip(self.vectors, self.sizes, strict=True)
        ]
        return torch.cat(pieces) if pieces else initial.new_zeros(0)
