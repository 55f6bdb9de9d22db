"""Which test samples a checkpoint classifies right: ``fedscope/outcomes/1``.

Two checkpoints tested on the same samples are right on many of the same ones, so that the error of the
difference of their accuracies is smaller than the two errors together: it is that of the samples' differences
d_i in {-1, 0, 1}, √(Var(d)/N), whose Wald test is McNemar's (1947) but for the variance under the null.
"""

import base64
import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from fedscope.records.hessian_record import CheckpointEntry, ProblemEntry
from fedscope.validation import Plain

OUTCOMES_SCHEMA = "fedscope/outcomes/1"


def packed(right: Sequence[bool]) -> str:
    """Return (N,) answers as text: base64 of a bit each, the first the highest of its byte."""
    size = -(-len(right) // 8)
    bits = "".join("1" if one else "0" for one in right).ljust(8 * size, "0")
    return base64.b64encode(int(bits, 2).to_bytes(size)).decode()


class OutcomesRecord(Plain):
    """Right and wrong answers of a checkpoint, in the order of the split's rows."""

    schema_name: Literal["fedscope/outcomes/1"] = Field(alias="schema")  # name and version of this format
    checkpoint: CheckpointEntry  # which weights were tested
    problem: ProblemEntry  # on which samples
    samples_sha256: str  # of inputs and targets
    right: str  # base64 of a bit per sample, the first the highest of its byte: 1 is right
    versions: dict[str, str] = Field(default_factory=dict)  # of fedscope and the packages that computed

    @model_validator(mode="after")
    def _is_whole(self) -> "OutcomesRecord":
        if len(base64.b64decode(self.right, validate=True)) != -(-self.problem.samples // 8):
            raise ValueError(f"right has not a bit for each of {self.problem.samples} samples")
        return self

    @property
    def bits(self) -> int:
        """The answers as one number, the first sample the highest bit."""
        return int.from_bytes(base64.b64decode(self.right)) >> -self.problem.samples % 8

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return self.bits.bit_count() / self.problem.samples

    def pairs(self, other: "OutcomesRecord") -> bool:
        """Say whether both were tested on the same samples."""
        return self.samples_sha256 == other.samples_sha256

    def stderr(self, other: "OutcomesRecord") -> float:
        """Return the standard error of the accuracies' difference, paired over the samples; NaN for one."""
        samples, ours, theirs = self.problem.samples, self.bits, other.bits
        if samples < 2:
            return math.nan
        gained, lost = (ours & ~theirs).bit_count(), (theirs & ~ours).bit_count()
        variance = (gained + lost - (gained - lost) ** 2 / samples) / (samples - 1)
        return math.sqrt(variance / samples)
