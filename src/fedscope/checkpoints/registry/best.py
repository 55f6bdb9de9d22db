"""The best round of a run, and on which samples that was decided."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedscope.checkpoints.file.schema import Round


def best(rounds: Iterable[Round]) -> Round | None:
    """Return the best round, the first of equals; None where none has an accuracy."""
    scored = [one for one in rounds if one.deciding is not None]
    return max(scored, key=lambda one: one.deciding or 0.0, default=None)


def chosen_on(settings: Mapping[str, Any]) -> str | None:
    """Return the split on which a run chose its best round; None where that is not known of an added run."""
    if settings.get("validation"):
        return "validation"
    found: str | None = settings.get("evaluate_on")
    return found
