"""What is to be analysed: checkpoints, samples and machine, as plain data that needs no PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fedscope.choices import BatchNormMode, DtypeName, SplitName

SAMPLES = 1024  # of every command, so that they share results


@dataclass(frozen=True)
class Targets:
    """The checkpoints to analyse, on which samples, and with what."""

    registry: Path
    checkpoints: tuple[str, ...] = ()  # references or files; none: the registry's newest run
    samples: int | Literal["all"] | None = None  # None: 1,024, or all of the user's own
    split: SplitName = "train"
    data_dir: Path | None = None
    model: str | None = None  # MODULE:FACTORY of the user's own network
    data: str | None = None  # MODULE:FACTORY of the user's own batches
    loss: str | None = None  # MODULE:FUNCTION; None: cross-entropy
    entry: str = ""  # which of several networks in a file
    dtype: DtypeName = "float32"
    bn: BatchNormMode = "eval"  # statistics of BatchNorm that are read
    batch_size: int | None = None
    seed: int = 0
    device: str = "auto"
    threads: int | None = None
    named: Mapping[str, str] = field(  # options that must have an effect, each with its flag
        default_factory=dict, compare=False, repr=False
    )

    @property
    def count(self) -> int | None:
        """How many samples; None: all there are."""
        if self.samples is None:
            return None if self.data else SAMPLES
        return None if self.samples == "all" else self.samples
