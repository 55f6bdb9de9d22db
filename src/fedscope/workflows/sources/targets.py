"""What is to be analysed: checkpoints, samples and machine, as plain data that needs no PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fedscope.choices import BatchNormMode, DtypeName, SplitName
from fedscope.workflows.option_fields import Bounds, Need, check_fields, option

OWN, NUMBERS = "Your own network and data", "Samples and numbers"
OF_SPLITS = f"{NUMBERS}, of a run's splits"  # which the clients of a round do not have
SAMPLES = 1024  # of every command, so that they share results


@dataclass(frozen=True)
class Targets:
    """The checkpoints to analyse, on which samples, and with what."""

    registry: Path
    checkpoints: tuple[str, ...] = ()  # references or files; none: the registry's newest run
    samples: int | Literal["all"] | None = None  # None: 1,024, or all of the user's own
    data_dir: Path | None = None
    model: str | None = option(
        None, "Your own network; CKPT is then its state_dict.", OWN, metavar="MODULE:FACTORY"
    )
    data: str | None = option(
        None, "Your own batches of (inputs, targets), or dicts.", OWN, metavar="MODULE:FACTORY"
    )
    loss: str | None = option(
        None, "Your own loss of (output, targets), a mean over samples. [default: cross-entropy]", OWN,
        metavar="MODULE:FUNCTION",
    )  # fmt: skip
    entry: str = option(
        "", "Which of several networks in your file, such as model_ema.", OWN, metavar="KEY",
        needs=(Need(lambda targets: targets.model, "without --model and --data"),),
    )  # fmt: skip
    split: SplitName = option("train", "", OF_SPLITS)
    bn: BatchNormMode = option(
        "eval", "BatchNorm statistics: stored, re-estimated, or the batch's own.", NUMBERS
    )
    dtype: DtypeName = option("float32", "", NUMBERS)
    batch_size: int | None = option(
        None, "Samples at a time; the data's error bars come from the batches' spread. [default: 128; of "
        "your own --data fewer, where that makes 16 batches]", NUMBERS, bounds=Bounds(least=1),
    )  # fmt: skip
    seed: int = option(0, "Of the sample and the probes.", NUMBERS, bounds=Bounds(least=0))
    device: str = "auto"
    threads: int | None = None
    named: Mapping[str, str] = field(  # options that must have an effect, each with its flag
        default_factory=dict, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def count(self) -> int | None:
        """How many samples; None: all there are."""
        if self.samples is None:
            return None if self.data else SAMPLES
        return None if self.samples == "all" else self.samples
