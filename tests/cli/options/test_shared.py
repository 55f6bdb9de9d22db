import pytest

from fedscope.cli.options.shared import size_of
from fedscope.errors import UserError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8G", 8 << 30),
        ("1.5 GiB", 3 << 29),
        ("512m", 512 << 20),
        ("100000000", 100_000_000),
        ("64M", 64 << 20),
        ("70000KB", 70_000 << 10),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "8X", "-1G", "G", "0G", "1e3"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no size of memory; give one such as 8G"):
        size_of(text)


@pytest.mark.parametrize(
    ("text", "unit"), [("8", True), ("63.9M", False), ("100", True), ("2KB", False), ("0.01G", False)]
)
def test_a_size_that_nothing_fits_in_is_quoted_with_a_hint_of_units(text: str, unit: bool) -> None:
    with pytest.raises(UserError, match=f"--memory {text} is too little for any .*8G or 512M, 64M") as told:
        size_of(text)
    assert ("in bytes without a unit" in str(told.value)) == unit
