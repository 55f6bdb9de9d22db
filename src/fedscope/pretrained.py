"""Pretrained networks and the files of their data by reference: ``hf:NAME``, ``text:PATH``, ``images:PATH``.

``hf:NAME`` is a folder as transformers' ``save_pretrained`` writes it, or a name of the hub. A network of the
hub is looked for in its cache, and fetched only when it is built. ``text:PATH:LENGTH`` is text that is cut
into sequences of LENGTH tokens. None of these is code: what is hashed of them is their content.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from fedscope.errors import UserError

NETWORK, TEXT, IMAGES = "hf", "text", "images"
LENGTH = 128  # tokens of a sequence, unless another number is asked for
_WEIGHTS = (
    "config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
    "*.bin.index.json",
)


def is_network(reference: str) -> bool:
    """Say whether a reference is to a pretrained network."""
    return reference.partition(":")[0] == NETWORK


def is_data(reference: str) -> bool:
    """Say whether a reference is to files of text or images, which the network's own processor prepares."""
    return reference.partition(":")[0] in (TEXT, IMAGES)


def is_content(reference: str) -> bool:
    """Say whether a reference is to content, and not to code."""
    return is_network(reference) or is_data(reference)


def name(reference: str) -> str:
    """Return the folder, or the name of the hub, of a pretrained network.

    Raises:
        UserError: the reference is to none.
    """
    scheme, _, rest = reference.partition(":")
    if scheme != NETWORK or not rest:
        raise UserError(f"a pretrained network is hf:FOLDER or hf:NAME of the hub, not {reference!r}")
    return rest


def folder(reference: str) -> Path | None:
    """Return where a pretrained network is here: its folder, or that of the hub's cache; None without."""
    place = Path(name(reference))
    if place.is_dir():
        return place
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ModuleNotFoundError:
        return None
    try:
        found = try_to_load_from_cache(name(reference), "config.json")
    except HFValidationError:  # a folder that is not there
        return None
    return Path(found).parent if isinstance(found, str) else None


def files(reference: str) -> tuple[Path, int]:
    """Return the file or folder of data, and the tokens of a sequence.

    Raises:
        UserError: there is no such file or folder, or the length is no number from 2 up.
    """
    scheme, _, rest = reference.partition(":")
    path, colon, length = rest.rpartition(":")
    if not (scheme == TEXT and colon):
        path, length = rest, str(LENGTH)
    if not (length.isascii() and length.isdigit() and int(length) > 1):
        raise UserError(
            f"{reference}: the length of a sequence is a number of tokens from 2 up, not {length!r}"
        )
    if not path or not Path(path).exists():
        raise UserError(f"{reference}: there is no file or folder {path!r}")
    return Path(path), int(length)


def digest(reference: str) -> str:
    """Return the SHA-256 of a network's weights and configuration, or of data files; "" without them."""
    if is_network(reference):
        home = folder(reference)
        found = [] if home is None else [p for pattern in _WEIGHTS for p in home.glob(pattern)]
        return _digest(home, found) if home and found else ""
    try:
        path = files(reference)[0]
    except UserError:
        return ""
    return _digest(path.parent, [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path])


def unchanged(references: tuple[str, ...], recorded: str, flag: str, *, named: bool) -> str:
    """Return a note if content is another than that of the hash ``recorded``, else "".

    Args:
        references: networks or data that a checkpoint names.
        recorded: the hash of all of them at that time.
        flag: the option that names them.
        named: the user has named them, so that other content may be used, and a network fetched.

    Raises:
        UserError: they are not on this machine, or have changed, and the user has not named them.
    """
    now = combined(map(digest, references))
    if now == recorded:
        return ""
    what, mend = " and ".join(references), f"{flag} {references[0]}"
    if not now:
        if named and is_network(references[0]):
            return ""
        raise UserError(
            f"{what} is not to be found from {Path.cwd()}; go to the folder that the run was started in, or "
            f"fetch it by naming it: {mend}"
        )
    changed = (
        f"the content of {what} has changed since training ({recorded[:8] or 'unknown'} then, {now[:8]} now)"
    )
    if named:
        return changed
    raise UserError(f"{changed}; if that is what you mean, name it: {mend}")


def combined(hashes: Iterable[str]) -> str:
    """Return one hash of several; the only one as it is; "" where one is missing."""
    found = list(hashes)
    if not all(found):
        return ""
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def _digest(top: Path, paths: Iterable[Path]) -> str:
    whole = hashlib.sha256()
    for path in sorted(set(paths)):
        stat = path.stat()
        whole.update(
            f"{path.relative_to(top).as_posix()} {_file(path, stat.st_mtime_ns, stat.st_size)}\n".encode()
        )
    return whole.hexdigest()


@lru_cache(maxsize=256)
def _file(path: Path, _changed: int, _size: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
