"""The sealed list of a pushed run's files and results, with sizes and hashes.

    {"format", "run", "files": {"final.pt": {"bytes", "sha256"}, …}, …, "sha256": the seal of all before}

Every name in it is one that ``layout`` knows, so that none leads out of the run's folder, and for a result
out of that of the registry's results, ``.analysis``.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.fields import Name, StrictModel, later, parse
from fedscope.checkpoints.file.formats import REMOTE_FORMAT, of_format, seal
from fedscope.storage import open_regular
from fedscope.storage.limits import parse_json


class File(StrictModel):
    """One file of a run."""

    bytes: Annotated[int, Field(ge=0, strict=True)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

    @classmethod
    def from_path(cls, path: Path) -> "File":
        with open_regular(path) as handle:
            digest = hashlib.file_digest(handle, "sha256")
            return cls(bytes=handle.tell(), sha256=digest.hexdigest())


class Contents(StrictModel):
    """The files of one run, by their paths below it with ``/``, and results by theirs below the registry."""

    format: str = REMOTE_FORMAT
    run: Name
    files: dict[str, File]
    created: str  # as in the manifest
    rounds: Annotated[int, Field(ge=0)] = later(0)  # how far the run had come
    in_place: bool = later(False)  # the files lie in ``RUN/``, not in ``objects/``

    @property
    def size(self) -> int:
        return sum(file.bytes for file in self.files.values())

    def place(self, name: str) -> str:
        sha256 = self.files[name].sha256
        if not self.in_place:
            return f"objects/{sha256[:2]}/{sha256[2:]}"
        return name if layout.is_result(name) else f"{self.run}/{name}"

    def to_bytes(self) -> bytes:
        data = self.model_dump(mode="json")
        return json.dumps({**data, "sha256": seal(data)}, indent=1).encode()

    @classmethod
    def from_bytes(cls, content: bytes, what: str) -> "Contents":
        data = of_format(parse_json(content), REMOTE_FORMAT, what)
        if data.pop("sha256", None) != seal(data):
            raise ValueError("its list of files does not match its hash")
        contents = parse(cls, data, what)
        if "manifest.json" not in contents.files:
            raise ValueError("it lists no run")
        for name in contents.files:
            if layout.kind(name) is None and not layout.is_result(name):
                raise ValueError(f"{name[:100]!a} is no file of a run")
        return contents
