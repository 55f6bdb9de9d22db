"""Sizes of memory as they are given on the command line, such as 8G."""

import re

from fedscope.errors import UserError

LEAST = 64 << 20  # bytes: no measurement takes less
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size_of(text: str) -> int:
    """Return the bytes of a size such as 8G, 512M or 1.5T (powers of 1,024)."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found or float(found[1]) == 0:
        raise UserError(f"{text!r} is no size of memory; give one such as 8G or 512M")
    size = int(float(found[1]) * _UNITS[found[2].upper()])
    if size < LEAST:
        unit = "" if found[2] else ", which is in bytes without a unit"
        raise UserError(
            f"--memory {text} is too little for any measurement{unit}; give one such as 8G or 512M, "
            f"{LEAST >> 20}M at least"
        )
    return size
