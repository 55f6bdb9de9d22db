"""Pretrained networks and the files of their data by reference: ``hf:NAME``, ``text:PATH``, ``images:PATH``.

``hf:NAME`` is a folder as transformers' ``save_pretrained`` writes it, or a name of the hub. A network of the
hub is looked for in its cache, and fetched only when it is built. ``text:PATH:LENGTH`` is text that is cut
into sequences of LENGTH tokens. None of these is code: what is hashed of them is their content.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from fedscope.errors import UserError, shortened, suggestion

NETWORK, TEXT, IMAGES = "hf", "text", "images"
LENGTH = 128  # tokens of a sequence, unless another number is asked for, or the network takes fewer
CONFIG = "config.json"
_WEIGHTS = (
    CONFIG,
    "*.safetensors",
    "*.safetensors.index.json",
    "pytorch_model*.bin",
    "*.bin.index.json",
)


def is_network(reference: str) -> bool:
    return reference.partition(":")[0] == NETWORK


def is_data(reference: str) -> bool:
    return reference.partition(":")[0] in (TEXT, IMAGES)


def is_content(reference: str) -> bool:
    return is_network(reference) or is_data(reference)


def name(reference: str) -> str:
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
        found = try_to_load_from_cache(name(reference), CONFIG)
    except HFValidationError:  # a folder that is not there
        return None
    return Path(found).parent if isinstance(found, str) else None


def sought(reference: str) -> None:
    """Check that a pretrained network is in its folder or in the hub's cache, or that the hub has it.

    The hub is asked once: its own libraries ask for every file, again and again, when it does not answer.
    """
    if folder(reference) is not None:
        return
    known = name(reference)
    try:
        from huggingface_hub import constants, get_hf_file_metadata, get_token, hf_hub_url
        from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError
    except ModuleNotFoundError:  # which whoever loads the network says
        return
    try:
        if constants.HF_HUB_OFFLINE:
            raise ConnectionError("HF_HUB_OFFLINE is set")
        get_hf_file_metadata(hf_hub_url(known, CONFIG), token=get_token())
    except Exception as error:  # whatever the hub, or the way to it, makes of it
        missing = isinstance(error, RepositoryNotFoundError | HFValidationError)
        there = "the hub has none" if missing else f"the hub cannot give it ({shortened(error, 100)})"
        beside = [place.name for place in _beside(Path(known)) if (place / CONFIG).is_file()]
        raise UserError(
            f"--model {reference}: there is no such folder here, and {there}; if it has moved, name its new "
            f"place: --model hf:FOLDER{suggestion(Path(known).name, beside)}"
        ) from error


def parts(reference: str) -> tuple[Path, int | None]:
    """Return the file or folder that a reference to data names, and the tokens of a sequence if said."""
    scheme, _, rest = reference.partition(":")
    path, colon, length = rest.rpartition(":")
    if not (scheme == TEXT and colon):
        path, length = rest, ""
    if not path:
        raise UserError(f"{reference}: there is no file or folder {path!r}")
    if colon and scheme == TEXT and not (length.isascii() and length.isdigit() and int(length) > 1):
        raise UserError(
            f"{reference}: the length of a sequence is a number of tokens from 2 up, not {length!r}"
        )
    return Path(path), int(length) if length else None


def files(reference: str) -> tuple[Path, int | None]:
    path, length = parts(reference)
    if not path.exists():
        raise UserError(f"{reference}: there is no file or folder {str(path)!r}")
    return path, length


def digest(reference: str, called: str = "") -> str:
    """Return the SHA-256 of a network's weights and configuration, or of data files; "" without them.

    Data are hashed with the name of their file or folder, or as if it were ``called`` so.
    """
    if is_network(reference):
        home = folder(reference)
        found = [] if home is None else [p for pattern in _WEIGHTS for p in home.glob(pattern)]
        return _digest({p.relative_to(home).as_posix(): p for p in found}) if home and found else ""
    try:
        path = files(reference)[0]
    except UserError:
        return ""
    top = Path(called or path.name)
    if not path.is_dir():
        return _digest({top.as_posix(): path})
    return _digest({(top / p.relative_to(path)).as_posix(): p for p in path.rglob("*") if p.is_file()})


def is_copy(reference: str, original: str, recorded: str, others: Sequence[str] = ()) -> bool:
    """Say whether a reference is to the content of ``original``, in whichever place.

    ``recorded`` is the hash of ``original`` and the ``others`` together; where it is "", data of the same
    kind, in sequences of the same length, may be it.
    """
    if is_network(reference) or is_network(original):
        return is_network(reference) and bool(recorded) and digest(reference) == recorded
    if not (is_data(reference) and reference.partition(":")[0] == original.partition(":")[0]):
        return False
    (_, length), (path, known) = parts(reference), parts(original)
    now = combined([digest(reference, path.name), *map(digest, others)])
    return length == known and recorded in ("", now)


def unchanged(references: tuple[str, ...], recorded: str, flag: str, *, named: bool) -> str:
    """Return a note if content is another than that of the hash ``recorded``, else "".

    Where the user has ``named`` it, other content may be used, and a network fetched.
    """
    now = combined(map(digest, references))
    if now == recorded:
        return ""
    what, mend = " and ".join(references), f"{flag} {references[0]}"
    if not now:
        if named and is_network(references[0]):
            return ""
        fetch = f"; or fetch it by naming it: {mend}" if is_network(references[0]) else ""
        raise UserError(
            f"{what} is not to be found from {Path.cwd()}; go to the folder that the run was started in, "
            f"or name its new place: {flag} {_moved(references, recorded)}{fetch}"
        )
    changed = (
        f"the content of {what} has changed since training ({recorded[:8] or 'unknown'} then, {now[:8]} now)"
    )
    if named:
        return changed
    raise UserError(f"{changed}; if that is what you mean, name it: {mend}")


def combined(hashes: Iterable[str]) -> str:
    found = list(hashes)
    if not all(found):
        return ""
    return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()


def _moved(references: tuple[str, ...], recorded: str) -> str:
    original, *others = references
    kind = original.partition(":")[0]
    if kind == NETWORK:
        path, tail, blank = Path(name(original)), "", "FOLDER"
        found = [place for place in _beside(path) if (place / CONFIG).is_file()]
    else:
        path, length = parts(original)
        tail, blank = f":{length}" if length else "", "PATH"
        found = [place for place in _beside(path) if place.suffix == path.suffix != "" and place.is_file()]
    named = (f"{kind}:{place}{tail}" for place in found)
    return next((one for one in named if is_copy(one, original, recorded, others)), f"{kind}:{blank}{tail}")


def _beside(path: Path) -> list[Path]:
    return sorted(path.parent.iterdir()) if path.parent.is_dir() else []


def _digest(named: Mapping[str, Path]) -> str:
    whole = hashlib.sha256()
    for name, path in sorted(named.items(), key=lambda one: one[1]):
        stat = path.stat()
        whole.update(f"{name} {_file(path, stat.st_mtime_ns, stat.st_size)}\n".encode())
    return whole.hexdigest()


@lru_cache(maxsize=256)
def _file(path: Path, _changed: int, _size: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
