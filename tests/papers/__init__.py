"""What the papers print, transcribed from their tables: the tests' own copy, to compare ours with.

``presets.csv`` holds the experiments' settings, the other files the printed results. A file's first lines
name the paper and say what its columns hold.
"""

import csv
from pathlib import Path


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of a transcription, without the lines that name its source."""
    lines = (Path(__file__).parent / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))
