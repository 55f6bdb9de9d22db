"""Places that runs are pushed to and pulled from: a folder here, or a store elsewhere by its fsspec backend.

    URL/runs/RUN.json        the sealed list of a run's files, written last: a run without a list is not there
    URL/objects/ab/cdef…     a file under the SHA-256 of its bytes; an empty file has none

A registry that is pushed to its own folder gets the lists alone; the files stay in ``URL/RUN/``. The backends
find their credentials by themselves; none is taken from a URL, printed or written.
"""

import errno
import logging
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.request import url2pathname

from fedscope.checkpoints.file.fields import NAME
from fedscope.errors import UserError
from fedscope.extras import needed
from fedscope.storage import atomic_file, open_regular

# scheme → the package that its backend needs, the extra that installs it
_STORES = {
    "s3": ("s3fs", "remote"),
    "gs": ("gcsfs", "remote"),
    "hf": ("huggingface_hub", "hub"),
    "http": ("aiohttp", "remote"),
    "https": ("aiohttp", "remote"),
}
# packages whose errors come from the store or the connection to it
_BACKENDS = {
    "aiobotocore", "aiohttp", "botocore", "gcsfs", "google", "httpx", "httpx2", "huggingface_hub", "s3fs",
}  # fmt: skip
_DENIED = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "RefreshError"}
_CHUNK = 1 << 20
_BLOCK = 1 << 23  # bytes that a store is asked for at once
_SILENCE = 60  # seconds without a byte after which a web server is given up
PATIENCE = 60  # seconds that a slow place is waited for
LEAST = 100  # bytes a second, on average
# called with how many bytes of a file have been carried; an exception ends the transfer
Tick = Callable[[int], None]

for _name in (*_BACKENDS, "fsspec"):  # errors are raised, not logged too
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Absent(UserError):
    """There is no such file at the place."""


class Folder:
    """A folder of this machine, or one that is mounted here."""

    is_readonly = False
    workers = 4

    def __init__(self, url: str, root: Path):
        self.url, self.root = url, root

    def size(self, place: str) -> int | None:
        path = self.root / place
        return path.stat().st_size if path.is_file() else None

    def read(self, place: str) -> Generator[bytes, None, None]:
        try:
            with open_regular(self.root / place) as source:
                while chunk := source.read(_CHUNK):
                    yield chunk
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Absent(f"there is no file {self.root / place}") from error

    def write(self, place: str, content: Path | bytes, tick: Tick) -> None:
        with atomic_file(self.root / place, below=self.root) as target:
            if isinstance(content, bytes):
                target.write(content)
                return
            with open_regular(content) as source:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
                    tick(source.tell())

    def entries(self, folder: str) -> list[str]:
        path = self.root / folder
        return [entry.name for entry in path.iterdir()] if path.is_dir() else []


class Store:
    """Files below a URL that fsspec reaches."""

    def __init__(self, scheme: str, url: str):
        self.url = url
        self.is_readonly = scheme in ("http", "https")  # can only be pulled from
        self.workers = 1 if scheme == "hf" else Folder.workers  # at once; on the hub each file is a commit
        package, extra = _STORES[scheme]
        try:
            self._files = _opened(scheme, web=self.is_readonly)
        except ImportError as error:
            raise UserError(f"{scheme}: needs {package}: pip install 'fedscope[{extra}]'") from error

    def size(self, place: str) -> int | None:
        """Return the size of the file at ``place`` in bytes; None if there is none."""
        try:
            with self._explained():
                size = self._files.info(self._at(place))["size"]
        except Absent:
            return None
        return None if size is None else int(size)

    def read(self, place: str) -> Generator[bytes, None, None]:
        """Yield the content of the file at ``place`` in parts; of a web server as a stream."""
        options = {"block_size": 0, "size": 1} if self.is_readonly else {"block_size": _BLOCK}
        with self._explained(), self._files.open(self._at(place), "rb", **options) as source:
            while chunk := source.read(_CHUNK):
                yield chunk

    def write(self, place: str, content: Path | bytes, tick: Tick) -> None:
        """Write a file, which is there as a whole or not at all."""
        from fsspec.callbacks import Callback

        try:
            with self._explained():
                if isinstance(content, bytes):
                    self._files.pipe_file(self._at(place), content)
                else:
                    told = Callback(hooks={"tick": lambda _, done: tick(done)})
                    self._files.put_file(str(content), self._at(place), callback=told)
        except Absent as error:
            raise UserError(f"there is no bucket or repository at {self.url}; make it first") from error

    def entries(self, folder: str) -> list[str]:
        """Return the names in a folder; of a web server, if it shows them as a page of links."""
        try:
            with self._explained():
                found = self._files.ls(self._at(folder) + "/" * self.is_readonly, detail=False)
        except Absent:
            return []
        return [str(name).rstrip("/").rpartition("/")[2] for name in found]

    def _at(self, place: str) -> str:
        return f"{self.url}/{place}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say in one line what a store raises; a full disk here, or a fault of fedscope, is none of it."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            name, status = type(error).__name__, _status(error)
            local = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE)
            if local or not (isinstance(error, OSError) or _package(error) in _BACKENDS):
                raise
            if isinstance(error, FileNotFoundError) or status in (404, 410):
                raise Absent(f"there is nothing at {self.url}") from error
            if isinstance(error, PermissionError) or status in (401, 403) or name in _DENIED:
                raise UserError(
                    f"{self.url} denies access; give credentials that may, where its backend looks for them "
                    "(docs/registry.md)"
                ) from error
            raise UserError(
                f"{self.url} cannot be reached ({name}); check address and network, and run the same command "
                "again: it goes on where it stopped"
            ) from error


Remote = Folder | Store


def remote(url: str) -> Remote:
    """Return the place that ``url`` names: a path, ``file:``, ``s3:``, ``gs:``, ``hf:`` or ``https:``."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", url)  # a scheme of one letter is a drive
    scheme, rest = (found[1].lower(), url[found.end() :]) if found else ("", url)
    if scheme in ("", "file"):
        path = Path(url2pathname("/" + rest.lstrip("/") if rest.startswith("/") else rest) if scheme else url)
        if path.exists() and not path.is_dir():
            raise UserError(f"{url} is no folder; name one that runs were, or are to be, pushed to")
        return Folder(url, path)
    if scheme not in _STORES:
        raise UserError(f"runs cannot travel by {scheme}:; use a folder, s3:, gs:, hf: or https:")
    if "@" in rest.lstrip("/").partition("/")[0] or "?" in rest or "#" in rest:
        raise UserError(
            "the URL holds a user, password, key or question mark, which would end in logs; leave them out, "
            f"and give the credentials where {scheme}: programs look for them (docs/registry.md)"
        )
    return Store(scheme, url.rstrip("/"))


def paced(remote: Remote, place: str) -> Generator[bytes, None, None]:
    """Yield the content of the file at ``place`` in parts, unless they come too slowly ever to end."""
    begun, size = monotonic(), 0
    with closing(remote.read(place)) as parts:
        for part in parts:
            yield part
            size, spent = size + len(part), monotonic() - begun
            if spent > PATIENCE and size < LEAST * spent:
                raise UserError(
                    f"{remote.url} sends {size / spent:.0f} bytes a second; run the same command again "
                    "later: it goes on with the files that lack"
                )


def runs_at(remote: Remote) -> list[str]:
    names = (name.removesuffix(".json") for name in remote.entries("runs") if name.endswith(".json"))
    return sorted(name for name in names if NAME.fullmatch(name))


def _opened(scheme: str, *, web: bool) -> Any:
    """Return the backend, which remembers no listing: another process may write meanwhile."""
    with needed("hub", "a store elsewhere"):
        import fsspec

    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if web:
        import aiohttp

        waits = aiohttp.ClientTimeout(total=None, sock_connect=_SILENCE, sock_read=_SILENCE)
        options["client_kwargs"] = {"timeout": waits}
    return fsspec.filesystem(scheme, **options)


def _status(error: Exception) -> int | None:
    found = (error, getattr(error, "response", None))
    codes = (getattr(one, name, None) for one in found for name in ("status", "code", "status_code"))
    return next((code for code in codes if isinstance(code, int)), None)


def _package(error: Exception) -> str:
    return type(error).__module__.partition(".")[0]
