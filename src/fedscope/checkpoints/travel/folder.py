"""A remote that is a folder of this machine."""

from collections.abc import Generator
from pathlib import Path

from fedscope.checkpoints.travel.remote import CHUNK, Absent, Remote, Tick
from fedscope.storage import atomic_file, open_regular


class Folder(Remote):
    """A folder of this machine, or one that is mounted here."""

    def __init__(self, url: str, root: Path):
        super().__init__(url)
        self.root = root

    def size(self, place: str) -> int | None:
        path = self.root / place
        return path.stat().st_size if path.is_file() else None

    def read(self, place: str) -> Generator[bytes, None, None]:
        try:
            with open_regular(self.root / place) as source:
                while chunk := source.read(CHUNK):
                    yield chunk
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Absent(f"there is no file {self.root / place}") from error

    def write(self, place: str, content: Path | bytes, tick: Tick) -> None:
        with atomic_file(self.root / place, below=self.root) as target:
            if isinstance(content, bytes):
                target.write(content)
                return
            with open_regular(content) as source:
                while chunk := source.read(CHUNK):
                    tick(len(chunk))
                    target.write(chunk)

    def entries(self, folder: str) -> list[str]:
        path = self.root / folder
        return [entry.name for entry in path.iterdir()] if path.is_dir() else []
