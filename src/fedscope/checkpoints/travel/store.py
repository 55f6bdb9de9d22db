"""A store elsewhere, by its fsspec backend: S3, Google's, the Hugging Face hub, and web servers for reading.

The backends find their credentials by themselves; none is taken from a URL, printed or written.
"""

import errno
import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedscope.checkpoints.travel.remote import CHUNK, Absent, Remote, Tick
from fedscope.errors import UserError
from fedscope.extras import needed

with needed("hub", "a store elsewhere"):
    import fsspec
    from fsspec.callbacks import Callback

_PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "hf": "huggingface_hub", "http": "aiohttp", "https": "aiohttp"}
_EXTRAS = {"hf": "hub"}  # that install these; of the others "remote"
# packages whose errors come from the store or the connection to it
_BACKENDS = {
    "aiobotocore", "aiohttp", "botocore", "gcsfs", "google", "httpx", "httpx2", "huggingface_hub", "s3fs",
}  # fmt: skip
_DENIED = {"NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError", "RefreshError"}
_BLOCK = 1 << 23  # bytes that a store is asked for at once
_SILENCE = 60  # seconds without a byte after which a web server is given up

for _name in (*_BACKENDS, "fsspec"):  # errors are raised, not logged too
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Store(Remote):
    """Files below a URL that fsspec reaches."""

    def __init__(self, scheme: str, url: str):
        super().__init__(url)
        self._web = self.is_readonly = scheme in ("http", "https")
        self._hub = scheme == "hf"
        try:
            self._files = _opened(scheme, self._web)
        except ImportError as error:
            extra = _EXTRAS.get(scheme, "remote")
            raise UserError(
                f"{scheme}: needs {_PACKAGES[scheme]}: pip install 'fedscope[{extra}]'"
            ) from error

    @property
    def workers(self) -> int:
        """How many files may be on the way at once; on the hub, where each is a commit, one."""
        return 1 if self._hub else super().workers

    def size(self, place: str) -> int | None:
        try:
            with self._explained():
                size = self._files.info(self._at(place))["size"]
        except Absent:
            return None
        return None if size is None else int(size)

    def read(self, place: str) -> Generator[bytes, None, None]:
        options = {"block_size": 0, "size": 1} if self._web else {"block_size": _BLOCK}  # web: as a stream
        with self._explained(), self._files.open(self._at(place), "rb", **options) as source:
            while chunk := source.read(CHUNK):
                yield chunk

    def write(self, place: str, content: Path | bytes, tick: Tick) -> None:
        try:
            with self._explained():
                if isinstance(content, bytes):
                    self._files.pipe_file(self._at(place), content)
                else:
                    self._files.put_file(str(content), self._at(place), callback=_Ticking(tick))
        except Absent as error:
            raise UserError(f"there is no bucket or repository at {self.url}; make it first") from error

    def entries(self, folder: str) -> list[str]:
        """Return the names in a folder; of a web server, if it shows them as a page of links."""
        try:
            with self._explained():
                found = self._files.ls(self._at(folder) + "/" * self._web, detail=False)
        except Absent:
            return []
        return [str(name).rstrip("/").rpartition("/")[2] for name in found]

    def _at(self, place: str) -> str:
        return f"{self.url}/{place}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            if _is_local(error):
                raise
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> UserError:
        name, status = type(error).__name__, _status(error)
        if isinstance(error, FileNotFoundError) or status in (404, 410):
            return Absent(f"there is nothing at {self.url}")
        if isinstance(error, PermissionError) or status in (401, 403) or name in _DENIED:
            return UserError(
                f"{self.url} denies access; give credentials that may, where its backend looks for them "
                "(docs/registry.md)"
            )
        return UserError(
            f"{self.url} cannot be reached ({name}); check address and network, and run the same command "
            "again: it goes on where it stopped"
        )


class _Ticking(Callback):  # type: ignore[misc]  # fsspec has no types
    """Calls ``tick`` after each part of a file with its bytes."""

    def __init__(self, tick: Tick):
        super().__init__()
        self._tick = tick

    def relative_update(self, inc: int = 1) -> None:
        self._tick(inc)


def _opened(scheme: str, web: bool) -> Any:
    """Return the backend, which remembers no listing: another process may write meanwhile."""
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


def _is_local(error: Exception) -> bool:
    """Say whether an error is not of the store: a full disk here, or a fault of fedscope."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE)
    return type(error).__module__.partition(".")[0] not in _BACKENDS
