"""A Parquet file, read row group by row group."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedscope.data.reading.decoding import first_line
from fedscope.errors import UserError
from fedscope.extras import needed

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


def encoded(path: Path, column: str, rows: NDArray[np.int64]) -> Iterator[bytes]:
    """Yield the encoded images of a shard's ``rows``, which ascend."""
    with reading(path):
        shard, start = opened(path), 0
        for group in range(shard.num_row_groups):
            stop = start + shard.metadata.row_group(group).num_rows
            wanted = rows[(rows >= start) & (rows < stop)] - start
            if len(wanted):
                images = shard.read_row_group(group, columns=[column]).column(column)
                for row in wanted.tolist():
                    image = images[row].as_py()
                    yield (image or {}).get("bytes") or b""
            start = stop


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever reading a file raises into one line that names it."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # pyarrow's errors, and those of what it reads, share no base class
        raise UserError(f"cannot read {path}: {first_line(error)}; fetch it again") from error


def opened(path: Path) -> "ParquetFile":
    """Return the file, of which nothing but its schema is read yet."""
    with needed("train", f"{path.name}, a Parquet file,"):
        from pyarrow.parquet import ParquetFile

    return ParquetFile(path)
