"""The measurements of a run's checkpoints: the fields of a recipe's ``measures``."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from fedscope.choices import ReadingName, SplitName
from fedscope.records.entries import Record
from fedscope.workflows.requests import Engine

Model = Literal["reported", "server", "best"]
# in a name only where not usual
_NAMED = ("split", "draw", "engine", "augment", "normalisation", "term", "only")


@dataclass(frozen=True)
class Measure:
    """One measurement of a checkpoint; the fields are those of the commands that do it."""

    kind: Literal["hessian", "landscape", "objective", "outcomes", "clients", "sharpness"]
    model: Model | None = None  # None: the column's
    samples: int | None = None  # None: all
    batch_size: int | None = None  # None: 128; of the published reading the run's
    reading: ReadingName = "paper"
    top_k: int = 1
    tol: float = 1e-3
    trace_rtol: float = 0.05
    probes: int | None = None
    density: bool = False
    clients: bool = False
    client_probes: int | None = None
    product_batches: int = 10
    grid: int = 41
    span: float = 1.0
    split: SplitName = "train"
    draw: int = 0  # the seed of the samples, and of the estimators
    engine: Engine = "fedscope"
    augment: bool = False  # each sample once, as in training
    normalisation: str | None = None  # the pipeline whose constants images get; None: the run's own
    term: bool = False  # MAN's term is part of the loss
    only: tuple[str, ...] = ()  # parts of ``clients``, or quantities of ``sharpness``; empty: the usual ones

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "Measure":
        unknown = set(table) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"a measure has no {', '.join(sorted(unknown))}")
        samples = None if table.get("samples") == "all" else table.get("samples")
        return cls(**{**table, "samples": samples, "only": tuple(table.get("only", ()))})

    @property
    def uploads(self) -> bool:
        return self.clients or self.kind == "clients"

    def request(self) -> Record:
        """Return what a result's name is made of; a field at its usual value may be left out."""
        usual = {field.name: field.default for field in fields(self)}
        return {k: v for k, v in asdict(self).items() if k not in _NAMED or v != usual[k]}

    def summary(self) -> str:
        amount = "all" if self.samples is None else f"{self.samples:,}"
        text = f"{self.kind} on {amount} {'training' if self.split == 'train' else self.split} samples"
        if self.reading == "code":
            batches = f"{self.product_batches} batch{'es' * (self.product_batches != 1)}"
            text = f"{self.kind} as the published scripts, {batches} a product"
        elif self.uploads:
            amount = "all" if self.samples is None else f"up to {self.samples:,}"
            probes = f", {self.client_probes} probes each" if self.client_probes else ""
            text = f"clients on {amount} of their own samples{probes}"
        if self.engine == "power":
            text += ", by power iteration of 20 steps"
        if self.normalisation:
            text += f", normalised as {self.normalisation}"
        if self.only:
            text += f" ({', '.join(self.only)})"
        if self.kind in ("landscape", "objective"):
            text += f", {self.grid} × {self.grid} points"
        return text
