import pytest

from fedscope.cli.options.sizes import size_of
from fedscope.errors import UserError


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8G", 8 << 30),
        ("1.5 GiB", 3 << 29),
        ("512m", 512 << 20),
        ("100", 100),
        ("2KB", 2048),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "8X", "-1G", "G", "0G", "1e3"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is no size of memory; give one such as 8G"):
        size_of(text)
