"""A table or figure of a paper: every number in it and what each is of, ``fedscope/artefact/1``."""

import math
from typing import Annotated, Literal

from pydantic import Field

from fedscope.records.hessian import HessianRecord
from fedscope.records.landscape import LandscapeRecord, ObjectiveRecord
from fedscope.records.numbers import Count, Many, Number
from fedscope.validation import Plain

ARTEFACT_SCHEMA = "fedscope/artefact/1"


class PaperValue(Plain):
    """What the paper prints in a cell, in its own digits; an empty value is lost there."""

    value: str
    std: str
    inferred: bool
    note: str


class Cell(Plain):
    """A quantity of a row under a column."""

    row: str
    column: str
    quantity: str
    value: float | None  # None: see the text
    std: float | None  # over seeds
    error: float | None  # of the measurement
    seeds: Count
    each: Many[float | None]  # of every seed
    text: str | None
    round: Count | None
    paper: PaperValue | None
    differs: bool | None  # from the paper's

    @property
    def spread(self) -> float | None:
        """The deviation over seeds, or of one seed the error of the measurement."""
        return self.std if self.seeds > 1 else self.error


class Claim(Plain):
    """A statement of the paper, and what the numbers here say of it."""

    statement: str
    verdict: Literal["holds", "does not hold", "undecided"]
    evidence: Many[str]


class Grid(Plain):
    """A table without runs."""

    header: Many[str]
    rows: Many[Many[str]]
    text_columns: Count = 1


class Sweep(Plain):
    """The option that a figure's rows differ in."""

    option: str
    label: str
    values: dict[str, float | None]  # of each row; None: a row without it


class Drawn(Plain):
    """What a figure draws of a run: its accuracies, or what was measured of it."""

    row: str
    column: str
    seed: int
    accuracy: Many[Number] = ()
    record: Annotated[
        HessianRecord | LandscapeRecord | ObjectiveRecord | None, Field(union_mode="left_to_right")
    ] = None


class UsedCheckpoint(Plain):
    """A checkpoint that was measured, and the name of the result."""

    file: str
    sha256: str
    result: str


class UsedRun(Plain):
    """A run that stands in a cell."""

    row: str
    column: str
    run: str
    round: Count
    checkpoints: dict[str, UsedCheckpoint]
    seed: int | None = None  # None: of an older record, as what follows
    accuracy: Number = math.nan  # on the test data, in its round
    core_seconds: Number = math.nan  # of its training up to there


class ReadingCell(Plain):
    """A measured quantity of a method under a reading, beside the printed one."""

    row: str
    quantity: str
    measured: float  # geometric mean over draws and seeds
    round: Count  # that it was measured at
    growth: float  # from that round to the last; 1 at the last
    expected: float  # at the last round, with weight decay where the reading has it
    printed: float

    @property
    def ratio(self) -> float:
        """What is expected, relative to what is printed."""
        return self.expected / self.printed


class ReadingResult(Plain):
    """One reading against all printed numbers."""

    name: str
    settings: dict[str, str]  # by axis
    draws: Count
    entries: Many[ReadingCell]
    sampling_spread: dict[str, float]  # of one draw, by quantity; of logarithms
    log_likelihood: float  # relative to the best reading's
    share: float  # posterior, under equal priors
    factors: dict[str, float]  # printed over expected, the best common one by quantity
    ratios_only: float  # log-likelihood after these factors, relative to the best reading's
    residual: float  # root mean square of the log-ratios after these factors
    p: float  # of numbers that fit no better, if the reading is right


class AxisShare(Plain):
    """The share of all readings with one setting, and the best of them."""

    axis: str
    value: str
    readings: Count
    share: float


class Sensitivity(Plain):
    """The best reading under other errors."""

    change: str
    best: str
    share: float
    usual: float  # the share there of the reading that is best as stated


class ReadingsResult(Plain):
    """What the authors of a table may have measured, by likelihood."""

    results: Many[ReadingResult]  # the most likely first
    axes: Many[AxisShare]
    sensitivities: Many[Sensitivity]
    training_spread: dict[str, float]
    spread_source: str
    growth_spread: float
    correlation: float
    common: dict[str, float]
    dof: float | None  # None: infinite
    growth: dict[str, float]  # of the base reading, by quantity
    grown_on: Many[str]
    incomplete: Many[str]  # readings that some method was not measured under
    open: dict[str, str]  # settings that were not measured, and why


class ArtefactRecord(Plain):
    """A table or figure."""

    schema_name: Literal["fedscope/artefact/1"] = Field(alias="schema")
    recipe: str
    title: str
    printed_in: str
    source: str
    kind: str
    scale: str
    why: Many[str]
    reductions: Many[str]
    provisional: Many[str]
    notes: Many[str]
    command: str
    complete: bool
    rows: Many[str]
    columns: Many[str]
    quantities: dict[str, str]  # their titles by name
    entries: Many[Cell]
    claims: Many[Claim]
    drawn: Many[Drawn]
    runs: Many[UsedRun]
    grid: Grid | None = None
    sweep: Sweep | None = None
    readings: ReadingsResult | None = None
