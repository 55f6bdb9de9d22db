"""Names and facts of the catalogues of methods, networks, data sets and presets, without importing PyTorch.

They are cached for the user, under a hash of fedscope's own source, unless other packages add to them.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from fedscope.errors import UserError, suggestion
from fedscope.own import DATASETS, MODELS, registered
from fedscope.storage import cache_dir, is_writable, read_text, write_text

Facts = dict[str, Any]
T = TypeVar("T")
GROUPS = ("fedscope.methods", MODELS, DATASETS)


def _methods() -> list[str]:
    from fedscope.federated.methods import ALIASES, known

    return [*known(), *ALIASES]


def _models() -> list[str]:
    from fedscope.models.catalogue import NETWORKS

    return list(NETWORKS)


def _datasets() -> list[str]:
    from fedscope.data.sets.dataset_catalogue import NAMES

    return list(NAMES)


def _presets() -> list[str]:
    from fedscope.federated.setup.paper_presets import presets

    return list(presets())


_NAMES: Mapping[str, Callable[[], list[str]]] = {
    "method": _methods,
    "model": _models,
    "dataset": _datasets,
    "preset": _presets,
}


def names(kind: str) -> list[str]:
    return cached(f"{kind}-names", _NAMES[kind])


def cached(what: str, make: Callable[[], T]) -> T:
    if extended():
        return make()
    path = cache_dir() / "catalogues" / f"{what}-{source()}.json"
    with suppress(OSError, ValueError, UserError):
        found: T = json.loads(read_text(path))
        return found
    made = make()
    if is_writable(path, below=cache_dir()):
        with suppress(OSError):
            write_text(path, json.dumps(made, ensure_ascii=False), below=cache_dir())
    return made


def extended() -> bool:
    """Say whether other packages add to the catalogues."""
    return any(map(registered, GROUPS))


def check(kind: str, name: object) -> None:
    """Refuse a name that is nearly one of the catalogue's, before anything that takes time is imported."""
    if not isinstance(name, str) or ":" in name or extended():
        return
    for part in name.split("+") if kind == "method" else [name]:
        if part not in names(kind) and (meant := suggestion(part, names(kind))):
            raise UserError(f"unknown {kind} {part!r}{meant}")


@cache
def source() -> str:
    """Return a hash of the package's own files."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*")):
        if file.suffix in (".py", ".toml"):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:32]
