"""The best round of a run, and on which samples that was decided."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedscope.checkpoints.file.schema import Round

Record = Mapping[str, Any]


def deciding(record: Record) -> float | None:
    """Return the accuracy of a round that decides: on the rows held out of training, where there are any."""
    found: float | None = (record.get("validation") or record).get("accuracy")
    return found


def best(records: Iterable[Record]) -> Record | None:
    """Return the best of the rounds' metrics, the first of equals; None where no round has an accuracy."""
    scored = [record for record in records if deciding(record) is not None]
    return max(scored, key=lambda record: deciding(record) or 0.0, default=None)


def best_round(rounds: Iterable[Round]) -> int:
    """Return the number of the best round; 0 where none has an accuracy."""
    found = best(record.model_dump() for record in rounds)
    return found["round"] if found else 0


def chosen_on(settings: Record) -> str | None:
    """Return the split on which a run chose its best round; None where that is not known of an added run."""
    if settings.get("validation"):
        return "validation"
    found: str | None = settings.get("evaluate_on")
    return found
