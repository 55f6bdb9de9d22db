"""Sizes of memory as they are given on the command line, such as 8G."""

import re

from fedscope.errors import UserError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_of(text: str) -> int:
    """Return the bytes of a size such as 8G, 512M or 1.5T (powers of 1,024).

    Raises:
        UserError: it is no size.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found or float(found[1]) == 0:
        raise UserError(f"{text!r} is no size of memory; give one such as 8G or 512M")
    return int(float(found[1]) * _UNITS[found[2].upper()])
