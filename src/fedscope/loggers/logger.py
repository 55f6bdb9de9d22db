"""The protocol of a logger, and the numbers that it gets."""

import hashlib
from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Protocol, runtime_checkable

from fedscope.checkpoints.file.schema import Manifest, Round
from fedscope.checkpoints.registry.run_folder import RunFolder

Numbers = Mapping[str, float]
"""Every number of a round by its name; nested ones and those of lists as NAME/KEY.

Lists of the diagnostics have a number for each client or class: their mean, least and largest stand for them.
"""


@runtime_checkable
class Logger(Protocol):
    """Takes the metrics of one run, round by round.

    A run that is continued opens the same logger again. Rounds come in ascending order, each once.
    """

    def open(self, run: RunFolder, settings: Mapping[str, object]) -> int:
        """Begin, or go on with, what is kept of a run.

        Args:
            run: its folder, name and manifest; :func:`key` names it for good.
            settings: of the training, the method's options among them as METHOD.OPTION.

        Returns:
            The last round that is kept already, 0 if none is: the rounds after it follow.
        """

    def log(self, round: int, metrics: Numbers) -> None:
        """Keep the numbers of a round, counted from 1."""

    def close(self) -> None:
        """End, after the last round or an error."""


def key(manifest: Manifest) -> str:
    """Return 16 hexadecimal digits that a run has from its beginning: a hash of its name and moment."""
    return hashlib.sha256(f"{manifest.name} {manifest.created}".encode()).hexdigest()[:16]


def settings_of(manifest: Manifest) -> dict[str, object]:
    settings = manifest.settings.model_dump(mode="json")
    options: dict[str, object] = settings.pop("options")
    return {**settings, **options}


def numbers(metrics: Round) -> dict[str, float]:
    """Return the numbers of a round; of its clients how many they are."""
    content = metrics.to_json()
    diagnostics = content.pop("diagnostics", None) or {}
    return dict([*_numbers(content), *_numbers(_summed_up(diagnostics), "diagnostics/")])


def _summed_up(diagnostics: Mapping[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in diagnostics.items():
        if isinstance(value, Mapping):
            found[name] = _summed_up(value)
        elif isinstance(value, list):
            known = [one for one in value if one is not None]
            found[name] = {"mean": fmean(known), "least": min(known), "most": max(known)} if known else {}
        else:
            found[name] = value
    return found


def _numbers(metrics: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if name == "clients":
            yield prefix + name, len(value) if isinstance(value, list) else 0
        elif name == "rows":  # whose they are, and no measure
            continue
        elif isinstance(value, list):
            entries = dict(zip(map(str, range(len(value))), value, strict=True))
            yield from _numbers(entries, f"{prefix}{name}/")
        elif isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "round":
            yield prefix + name, value
