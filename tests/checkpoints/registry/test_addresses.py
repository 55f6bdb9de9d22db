"""What a checkpoint is called behind RUN@."""

from pathlib import Path

import pytest

from fedscope.checkpoints.registry.addresses import address_of


@pytest.mark.parametrize(
    ("file", "address"),
    [
        ("final.pt", "final"), ("best.pt", "best"), ("initial.pt", "initial"), ("sel.pt", "sel"),
        ("all.pt", "all"), ("last.pt", None), ("round-0012.pt", "12"), ("round-0012/sel.pt", "12:sel"),
        ("clients/0003.pt", "client3"), ("round-0002/clients/0003.pt", "2:client3"),
    ],
)  # fmt: skip
def test_a_file_has_the_address_by_which_it_is_found(file: str, address: str | None) -> None:
    assert address_of(Path("registry", "run", file)) == address
