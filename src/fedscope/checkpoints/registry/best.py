"""The best round of a run, and on which samples that was decided."""

from collections.abc import Iterable, Mapping
from operator import attrgetter

from fedscope.checkpoints.file.schema import Round


def best(rounds: Iterable[Round]) -> Round | None:
    scored = [one for one in rounds if one.deciding is not None]
    return max(scored, key=attrgetter("deciding"), default=None)


def chosen_on(settings: Mapping[str, object]) -> str | None:
    """Return the split on which a run chose its best round; None where that is not known of an added run."""
    split = "validation" if settings.get("validation") else settings.get("evaluate_on")
    return None if split is None else str(split)
