"""A table or figure of a paper: every number in it and what each is of, ``fedscope/artefact/1``."""

from typing import Annotated, Literal

from pydantic import Field

from fedscope.records.hessian_record import HessianRecord
from fedscope.records.landscape_record import LandscapeRecord, ObjectiveRecord
from fedscope.records.number_types import Count, Many, Number
from fedscope.records.sharpness_record import Correlation, SharpnessRecord
from fedscope.validation import Plain

ARTEFACT_SCHEMA = "fedscope/artefact/1"


class PaperValue(Plain):
    """What the paper prints in a cell, in its own digits; an empty value is lost there."""

    value: str  # as printed; empty: lost in the paper's text
    std: str  # as printed; empty: none
    inferred: bool  # whether the paper does not print it in that cell
    note: str  # what is odd about it

    @property
    def number(self) -> float | None:
        """The value; None where it is lost, or is no number, as in ``500+``."""
        try:
            return float(self.value)
        except ValueError:
            return None

    @property
    def spread(self) -> float | None:
        """The standard deviation that is printed with it, if one is."""
        return float(self.std) if self.std else None


class ArtefactCell(Plain):
    """A quantity of a row under a column."""

    row: str  # its label
    column: str  # its label
    quantity: str  # its name
    value: float | None  # mean over seeds; None: see the text
    std: float | None  # standard deviation over seeds (n − 1)
    error: float | None  # standard error of the measurement
    seeds: Count  # how many runs
    each: Many[float | None]  # the value of every seed
    text: str | None  # what stands in the cell in the place of a number
    round: Count | None  # that the runs have come to [rounds]
    paper: PaperValue | None  # what the paper prints; None: nothing
    differs: bool | None  # from the paper's by more than twice the combined error; None: not compared

    @property
    def spread(self) -> float | None:
        """The deviation over seeds, or of one seed the error of the measurement."""
        return self.std if self.seeds > 1 else self.error


class Claim(Plain):
    """A statement of the paper, and what the numbers here say of it."""

    statement: str  # of the paper
    verdict: Literal["holds", "does not hold", "undecided"]  # of all statements of the page together, at 95 %
    evidence: Many[str]  # the differences that decide


class Grid(Plain):
    """A table without runs."""

    header: Many[str]  # titles of the columns
    rows: Many[Many[str]]  # cells
    text_columns: Count = 1  # how many of the first columns are text


class SweepEntry(Plain):
    """The option that a figure's rows differ in."""

    option: str  # its name
    label: str  # of the axis
    values: dict[str, float | None]  # of each row; None: a row without it


class DrawnEntry(Plain):
    """What a figure draws of a run: its accuracies, or what was measured of it."""

    row: str  # its label
    column: str  # its label
    seed: int  # of the run
    accuracy: Many[Number] = ()  # on the test split by round, in [0, 1]
    # what was measured; None: nothing is drawn but the accuracy
    record: Annotated[
        HessianRecord | LandscapeRecord | ObjectiveRecord | SharpnessRecord | None,
        Field(union_mode="left_to_right"),
    ] = None


class UsedCheckpoint(Plain):
    """A checkpoint that was measured, and the name of the result."""

    file: str  # within the run
    sha256: str  # hash of the tensors
    result: str  # name of the result in the registry's cache


class UsedSettings(Plain):
    """What of a run's settings its costs are told by."""

    device: str = "cpu"  # cpu, or cuda with its number if it was given


class UsedRun(Plain):
    """A run that stands in a cell."""

    row: str  # its label
    column: str  # its label
    run: str  # its name
    round: Count  # that stands in the cell [rounds]
    checkpoints: dict[str, UsedCheckpoint]  # that were measured, by what was measured of them
    seed: int  # of the training
    accuracy: Number  # on the test data, in its round
    core_seconds: Number  # of its training up to there [s]
    settings: UsedSettings  # of its training


class ArtefactRecord(Plain):
    """A table or figure."""

    schema_name: Literal["fedscope/artefact/1"] = Field(alias="schema")  # name and version of this format
    recipe: str  # its name, as ``fedscope figures build`` takes it
    title: str  # of the table or figure
    printed_in: str  # its number in the paper
    source: str  # the paper
    kind: str  # of recipe: table, curves, landscape, …
    scale: str  # ``paper``, ``cpu`` or ``smoke``
    why: Many[str]  # reasons of the scale
    reductions: Many[str]  # departures from the published experiment
    provisional: Many[str]  # settings that no source gives
    notes: Many[str]  # what else to know
    command: str  # that builds it again
    complete: bool  # whether no run and no measurement is missing
    rows: Many[str]  # labels in order
    columns: Many[str]  # labels in order
    quantities: dict[str, str]  # their titles by name
    entries: Many[ArtefactCell]  # every cell
    claims: Many[Claim]  # the paper's statements
    drawn: Many[DrawnEntry]  # what a figure draws, a run each
    runs: Many[UsedRun]  # that stand in the cells
    grid: Grid | None = None  # of a table without runs
    sweep: SweepEntry | None = None  # of a figure over an option
    panels: Many[Many[str]] = ()  # quantities of each panel, of kind ``dots``; empty: a panel for each
    correlations: Many[Correlation] = ()  # with the generalisation gap, of kind ``correlation``
