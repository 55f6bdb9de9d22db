"""The remote that a URL names."""

import re
from pathlib import Path
from urllib.request import url2pathname

from fedscope.checkpoints.travel.folder import Folder
from fedscope.checkpoints.travel.remote import Remote
from fedscope.errors import UserError

STORES = ("s3", "gs", "hf", "https", "http")


def remote(url: str) -> Remote:
    """Return the place that ``url`` names: a path, ``file:``, or a scheme of :data:`STORES`."""
    scheme, rest = _split(url)
    if scheme in (None, "file"):
        path = url2pathname("/" + rest.lstrip("/") if rest.startswith("/") else rest) if scheme else url
        if Path(path).exists() and not Path(path).is_dir():
            raise UserError(f"{url} is no folder; name one that runs were, or are to be, pushed to")
        return Folder(url, Path(path))
    if scheme not in STORES:
        raise UserError(f"runs cannot travel by {scheme}:; use a folder, s3:, gs:, hf: or https:")
    if "@" in rest.lstrip("/").partition("/")[0] or "?" in rest or "#" in rest:
        raise UserError(
            "the URL holds a user, password, key or question mark, which would end in logs; leave them out, "
            f"and give the credentials where {scheme}: programs look for them (docs/registry.md)"
        )
    from fedscope.checkpoints.travel.store import Store  # fsspec's backends: not for a folder

    return Store(scheme, url.rstrip("/"))


def _split(url: str) -> tuple[str | None, str]:
    """Return scheme and rest; a scheme of one letter is a drive."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", url)
    return (found[1].lower(), url[found.end() :]) if found else (None, url)
