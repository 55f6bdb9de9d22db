"""Concept shift: the labels of the classes change while the federation trains (FedFOR, section 4.4).

One map from a sample's class to its current label holds for all clients, in training and in evaluation:
``label_maps(…)[t][labels]`` are the labels of round t. It depends on its generator alone, so that every
method meets the same shifts.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedscope.errors import UserError
from fedscope.streams import numpy_stream

# Neither number is published; both are provisional.
PROBABILITY = 0.05  # of a shift in a round: ten shifts are expected in 200 rounds
SHIFTS = 10  # of the schedule fixed10
Schedule = Literal["bernoulli", "fixed10"]
Labels = NDArray[np.int64]


def label_maps(
    classes: int,
    rounds: int,
    *,
    generator: np.random.Generator,
    schedule: Schedule = "bernoulli",
    probability: float = PROBABILITY,
) -> Labels:
    """Return the label of every class in every round: (rounds, classes) int64.

    The map is the identity until the first shift. A shift comes at the start of a round, before clients are
    sampled: a class, chosen uniformly, takes a label chosen uniformly among the others than its own. Two
    classes may come to share a label. Under ``bernoulli`` each round shifts with ``probability``; under
    ``fixed10`` ten distinct rounds do, drawn without replacement.

    Draws: under ``bernoulli`` one uniform number per round, under ``fixed10`` the rounds; then, for each
    shift in turn, its class and its label.

    Raises:
        UserError: fewer than two classes, fewer than ten rounds under ``fixed10``, no such schedule, or a
            probability that is none.
    """
    if classes < 2:
        raise UserError(f"concepts shift between at least 2 classes, not {classes}")
    current = np.arange(classes)
    shifting = _shifting(rounds, schedule, probability, generator)
    maps = np.empty((rounds, classes), dtype=np.int64)
    for round in range(rounds):
        if shifting[round]:
            chosen = generator.integers(classes)
            current[chosen] = (current[chosen] + 1 + generator.integers(classes - 1)) % classes
        maps[round] = current
    return maps


def run_maps(
    classes: int, rounds: int, seed: int, sequence: int, schedule: Schedule, probability: float = PROBABILITY
) -> Labels:
    """Return :func:`label_maps` of a run: the same for every method with this ``seed`` and ``sequence``."""
    generator = numpy_stream(seed, "concept shift", sequence)
    return label_maps(classes, rounds, generator=generator, schedule=schedule, probability=probability)


def _shifting(
    rounds: int, schedule: str, probability: float, generator: np.random.Generator
) -> NDArray[np.bool_]:
    if schedule == "bernoulli":
        if not 0 <= probability <= 1:
            raise UserError(f"the probability of a shift is between 0 and 1, not {probability}")
        return np.asarray(generator.random(rounds) < probability)
    if schedule != "fixed10":
        raise UserError(f"unknown schedule of shifts {schedule!r}; choose bernoulli or fixed10")
    if rounds < SHIFTS:
        raise UserError(f"{SHIFTS} shifts need as many rounds, not {rounds}; raise --rounds")
    shifting = np.zeros(rounds, dtype=bool)
    shifting[generator.choice(rounds, SHIFTS, replace=False)] = True
    return shifting


def shift_rounds(maps: Labels) -> list[int]:
    """Return the rounds, from 0, that begin with a shift."""
    before = np.vstack([np.arange(maps.shape[1]), maps[:-1]])
    return [int(round) for round in np.flatnonzero((maps != before).any(axis=1))]


def mean_best_since_shift(accuracies: Sequence[float], shifts: Sequence[int]) -> float:
    """Return the mean over the rounds of the best accuracy since the last shift, the round itself included.

    ``accuracies`` (T,) are those after each round, ``shifts`` the rounds, from 0, that began with a shift.
    This is our reading of FedFOR's "average best validation accuracy".

    Raises:
        ValueError: no accuracy, or a shift outside the rounds.
    """
    stretches = np.split(_checked(accuracies, shifts), sorted(set(shifts)))
    return float(np.concatenate([np.maximum.accumulate(stretch) for stretch in stretches]).mean())


def mean_current(accuracies: Sequence[float], shifts: Sequence[int]) -> float:
    """Return the mean accuracy over the rounds; arguments and errors as in :func:`mean_best_since_shift`."""
    return float(_checked(accuracies, shifts).mean())


def _checked(accuracies: Sequence[float], shifts: Sequence[int]) -> NDArray[np.float64]:
    if len(accuracies) == 0 or any(not 0 <= round < len(accuracies) for round in shifts):
        raise ValueError(f"{len(accuracies)} accuracies with shifts in rounds {list(shifts)}")
    return np.asarray(accuracies, dtype=np.float64)


METRICS = {"mean_best_since_shift": mean_best_since_shift, "mean_current": mean_current}
