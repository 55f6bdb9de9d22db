"""Which test samples a checkpoint classifies right: ``fedscope/outcomes/1``.

Two checkpoints tested on the same samples are right on many of the same ones, so that the error of the
difference of their accuracies is smaller than the two errors together: it is that of the samples' differences
d_i in {-1, 0, 1}, √(Var(d)/N), whose Wald test is McNemar's (1947) but for the variance under the null.
"""

import base64
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedscope.records.hessian import Checkpoint, Problem
from fedscope.validation import Plain

OUTCOMES_SCHEMA = "fedscope/outcomes/1"


def packed(right: Sequence[bool]) -> str:
    """Return (N,) answers as text: base64 of a bit each, the first the highest of its byte."""
    return base64.b64encode(np.packbits(np.asarray(right, dtype=bool)).tobytes()).decode()


class OutcomesRecord(Plain):
    """Right and wrong answers of a checkpoint, in the order of the split's rows."""

    schema_name: Literal["fedscope/outcomes/1"] = Field(alias="schema")
    checkpoint: Checkpoint
    problem: Problem
    samples_sha256: str
    right: str  # as :func:`packed` writes it
    versions: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_whole(self) -> "OutcomesRecord":
        if len(base64.b64decode(self.right, validate=True)) != -(-self.problem.samples // 8):
            raise ValueError(f"right has not a bit for each of {self.problem.samples} samples")
        return self

    @property
    def answers(self) -> NDArray[np.bool_]:
        """(N,) whether each sample was classified right."""
        bits = np.frombuffer(base64.b64decode(self.right), np.uint8)
        return np.unpackbits(bits, count=self.problem.samples).astype(bool)

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return float(self.answers.mean())

    def pairs(self, other: "OutcomesRecord") -> bool:
        """Say whether both were tested on the same samples."""
        return self.samples_sha256 == other.samples_sha256

    def stderr(self, other: "OutcomesRecord") -> float:
        """Return the standard error of the difference of the two accuracies, paired over the samples."""
        gaps = self.answers.astype(float) - other.answers
        return math.sqrt(gaps.var(ddof=1) / len(gaps))
