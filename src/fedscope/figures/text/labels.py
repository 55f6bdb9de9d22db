"""Names in tables, titles and legends: of methods, data sets and checkpoints, one for each checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the names of axes are asked for without any record
    from fedscope.records.hessian_record import CheckpointEntry, HessianRecord
    from fedscope.records.landscape_record import LandscapeRecord
    from fedscope.records.sharpness_record import SharpnessRecord

PRINTED = {
    "fedavg": "FedAvg", "fedprox": "FedProx", "moon": "MOON", "mixup": "Mixup", "stochdepth": "StochDepth",
    "gradaug": "GradAug", "fedalign": "FedAlign", "fedsam": "FedSAM", "fedasam": "FedASAM",
    "feddyn": "FedDyn", "fedpd": "FedPD", "feddc": "FedDC", "fedspeed": "FedSpeed", "scaffold": "SCAFFOLD",
    "fedgamma": "FedGAMMA", "man": "MAN", "fedcurv": "FedCurv", "fedbn": "FedBN", "fedfor": "FedFOR",
    "fedavgm": "FedAvgM", "fedadagrad": "FedAdagrad", "fedadam": "FedAdam", "fedyogi": "FedYogi",
    "fednova": "FedNova", "fedcm": "FedCM", "mofedsam": "MoFedSAM", "fedsmoo": "FedSMOO",
    "fedlesam": "FedLESAM", "fedlesam-s": "FedLESAM-S", "fedlesam-d": "FedLESAM-D", "fedgloss": "FedGloSS",
    "fedgf": "FedGF", "fedtoga": "FedTOGA", "fednsam": "FedNSAM", "fedwmsam": "FedWMSAM", "fedswa": "FedSWA",
    "fedmoswa": "FedMoSWA", "swa": "SWA", "ema": "EMA", "fedntd": "FedNTD", "fedsol": "FedSOL",
    "fedlc": "FedLC", "fedrs": "FedRS", "feddecorr": "FedDecorr", "fedexp": "FedExP", "fedacg": "FedACG",
}  # fmt: skip
"""Each method as its paper prints it, by the name that commands take."""

PRINTED_DATA = {
    "digits": "digits", "synthetic": "synthetic", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100",
    "imbalanced_cifar10": "imbalanced CIFAR-10", "tinyimagenet": "Tiny-ImageNet",
    "imagenet200": "ImageNet-200", "digits5": "Digits-Five", "office_caltech": "Office-Caltech",
    "domainnet": "DomainNet", "domainnet_concept_shift": "DomainNet under concept shift",
}  # fmt: skip
"""Each data set as the papers print it, by the name that commands take."""


def method_name(method: str) -> str:
    """Return a method as it is printed, ``FedAvg+MAN`` for ``fedavg+man``; another package's as it is."""
    return "+".join(PRINTED.get(part, part) for part in method.split("+"))


def data_name(dataset: str) -> str:
    return PRINTED_DATA.get(dataset, dataset)


def label(checkpoint: CheckpointEntry) -> str:
    """Return ``RUN@ROUND``, ``RUN@clientK (round R)``, ``RUN@all (round R)``; or a state_dict's file name.

    A client's model inside its training is ``RUN@ROUND:clientK:stepS``. One that was sent is
    ``RUN@ROUND:anchor (sent)``, by the round that began with it.
    """
    if checkpoint.run is None:
        return PurePath(checkpoint.path).name
    run, round, client = checkpoint.run, checkpoint.round, checkpoint.client
    if checkpoint.other_average == "sent" and round is not None:
        return f"{run}@{round + 1}:anchor (sent)"
    if checkpoint.step is not None:
        return f"{run}@{round}:client{client}:step{checkpoint.step}"
    which = f"client{client}" if client is not None else checkpoint.other_average
    return f"{run}@{round}" if which is None else f"{run}@{which} (round {round})"


def measured_on(records: Sequence[HessianRecord]) -> str:
    numbers = sorted({record.problem.samples for record in records})
    counts = " or ".join(f"{number:,}" for number in numbers)
    return f"measured on {counts} samples (fewer give a larger λ_max){in_subspace(records)}"


def in_subspace(
    records: Sequence[HessianRecord] | Sequence[LandscapeRecord] | Sequence[SharpnessRecord],
) -> str:
    """Return the end of a caption that says which LoRA adapters were measured alone; "" where none were."""
    found = list(dict.fromkeys(record.problem.lora for record in records if record.problem.lora))
    return f"; in the LoRA subspace {' or '.join(found)}" if found else ""


def family(name: str, names: Sequence[str]) -> str:
    """Return the one of ``names`` to which ``name`` adds something, or itself; nothing where none adds any.

    ``FedAvg`` is the family of ``FedAvg`` and ``FedAvg+MAN``: what shares a colour.
    """
    added = any(other.startswith(f"{base}+") for base in names for other in names)
    bases = [base for base in names if f"{name}+".startswith(f"{base}+")]
    return min(bases, key=len) if added and bases else ""


def shared_name(names: Sequence[str]) -> str:
    """Return a common name for several surfaces' axes: without the text in brackets where it differs."""
    found = list(dict.fromkeys(names))
    return found[0] if len(found) == 1 else " / ".join(dict.fromkeys(name.split(" (")[0] for name in found))


def titles(records: Sequence[HessianRecord] | Sequence[LandscapeRecord]) -> list[str]:
    """Return the records' methods where each has its own, else their checkpoints' labels."""
    return distinct_methods(records) or [label(record.checkpoint) for record in records]


def distinct_methods(records: Sequence[HessianRecord] | Sequence[LandscapeRecord]) -> list[str]:
    methods = [record.problem.method for record in records]
    names = [method_name(method) for method in methods if method is not None]
    return names if len(names) == len(methods) == len(set(methods)) else []
