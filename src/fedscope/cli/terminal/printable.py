"""Texts of others as they are printed: what would steer a terminal is made visible."""

import re

# control characters but the line end, overrides of the writing direction, what is invisible, half characters
STEERING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def safe(text: str) -> str:
    """Return ``text`` with what would steer a terminal made visible: \\x1b for ESC, \\u202e for an override.

    Texts from files and names of files are printed only so; line ends stay.
    """
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)
