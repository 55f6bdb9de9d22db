"""What names the program that computed a result."""

import hashlib
from pathlib import Path

import fedscope
from fedscope.landscape.surroundings import code

PACKAGE = Path(fedscope.__file__).parent


def test_the_name_covers_every_file_of_the_analysis() -> None:
    digest = hashlib.sha256()
    for folder in ("landscape", "workflows", "statistics"):
        files = sorted((PACKAGE / folder).rglob("*.py"))
        assert files
        for file in files:
            digest.update(file.read_bytes())
    assert code() == digest.hexdigest()
