"""The quantities of a checkpoint's curvature, once each: what they are called, and where records have them.

Tables, pictures, the report, verdicts and recipes are loops over :data:`QUANTITIES`. A new quantity is a row
here; one that is compared in its own way, or is of two records alone as a distance of spectra is, is also a
function of the two in :mod:`fedscope.records.differences`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Literal

from fedscope.choices import Reading
from fedscope.records.clients_record import ClientsRecord
from fedscope.records.cross_client_entry import READINGS
from fedscope.records.estimates import Entry, EstimateEntry, MeanSymbol
from fedscope.records.hessian_record import HessianRecord

OfRecord = Callable[[Any], Entry | None]


@dataclass(frozen=True)
class Quantity:
    """A number that a record has of a checkpoint, or that two records have together."""

    name: str  # as records and recipes call it
    symbol: str  # as tables call it
    of: OfRecord = lambda _: None  # in a record; None: it does not have it
    of_population: OfRecord | None = None  # of what the samples were drawn from, where that is another number
    mean: MeanSymbol | None = None  # what it is of all pairs of clients
    errors: str = ""  # of a table's column: which errors stand behind the value
    is_compared: bool = True  # whether two records are compared in it
    sharpness: bool = False  # whether the minimum with the higher value is the sharper one
    meaning: str = ""  # of a difference, where its name does not say it
    better: Literal["lower", "higher"] = "lower"
    # what a lower and a higher value say of checkpoints ``{}``; none: the report has no sentence on it
    words: tuple[str, str] | None = None

    @property
    def column(self) -> str:
        """The heading of its column."""
        return f"{self.symbol}{self.errors}"

    def is_in(self, record: HessianRecord | ClientsRecord) -> bool:
        """Say whether a record has it; a mean over pairs that it has in one reading counts in the other."""
        if self.mean:
            return bool(getattr(record.cross_client, self.mean, None))
        return self.of(record) is not None

    def compared(self, record: HessianRecord) -> Entry | None:
        """Return what is compared with another record's: of the population, or else of the samples."""
        return (self.of_population and self.of_population(record)) or self.of(record)


def _mean(symbol: MeanSymbol, reading: Reading, record: HessianRecord) -> EstimateEntry | None:
    return record.cross_client.mean(symbol, reading) if record.cross_client else None


def _population(symbol: MeanSymbol, reading: Reading, record: HessianRecord) -> EstimateEntry | None:
    return record.cross_client.population(symbol, reading) if record.cross_client else None


def _over_pairs() -> Iterator[Quantity]:
    """Yield the means over pairs of clients."""
    clients = "the clients of {} %s than those of {reference}"
    for symbol in ("H_N", "H_N_scale_free", "H_D"):
        for reading in READINGS:
            agree = ("agree less", "agree more") if symbol == "H_D" else ("differ less", "differ more")
            yield Quantity(
                f"{symbol}_{reading}",
                f"{symbol.replace('_scale_free', ' scale-free')} ({reading})",
                partial(_mean, symbol, reading),
                partial(_population, symbol, reading),
                symbol,
                is_compared=symbol != "H_N_scale_free",
                better="higher" if symbol == "H_D" else "lower",
                words=(clients % agree[0], clients % agree[1])
                if (symbol, reading) in (("H_N", "tensor"), ("H_D", "tensor"))
                else None,
            )


_FLAT = ("{} {be} flatter than {reference}", "{} {be} sharper than {reference}")
LAMBDA_MAX = Quantity(
    "lambda_max", "λ_max", attrgetter("lambda_max"), errors=" ± data", sharpness=True, words=_FLAT,
    meaning="without the upward bias of few samples, which each value by itself has",
)  # fmt: skip
TRACE = Quantity("trace", "trace", attrgetter("trace"), errors=" ± probe ± data", sharpness=True, words=_FLAT)
SIZES = (LAMBDA_MAX, TRACE)
"""Of every model whose curvature was measured."""
OVER_PAIRS = tuple(_over_pairs())
"""Of checkpoints whose clients were compared."""
QUANTITIES = (*SIZES, *OVER_PAIRS)
"""All of them, in the order of tables."""
HEADLINES = tuple(one for one in QUANTITIES if one.words)
"""Those that a report's summary has."""
