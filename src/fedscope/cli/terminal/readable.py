"""Text for a terminal: what would steer it is made visible, and λ becomes "lambda" where it has no λ."""

import codecs
import re
import sys
import unicodedata
from typing import TextIO

# control characters but the line end, overrides of the writing direction, what is invisible, half characters
STEERING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


def safe(text: str) -> str:
    """Return ``text`` with what would steer a terminal made visible: \\x1b for ESC, \\u202e for an override.

    Texts from files and names of files are printed only so; line ends stay.
    """
    return STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


NAME = "fedscope-readable"  # as an encoding's error handler
_WRITTEN = {
    "±": "+-", "×": "x", "·": ".", "…": "...", "–": "-", "—": "-", "−": "-", "→": "->", "≥": ">=", "≤": "<=",
    "≈": "~", "‖": "||", "∇": "grad", "∞": "inf", "½": "1/2", "ᵀ": "^T", "√": "sqrt ",
    "‘": "'", "’": "'", "“": '"', "”": '"', "≠": "!=", "∈": "in", "⟨": "<", "⟩": ">", "ø": "o", "ß": "ss",
    "≡": "==", "⊙": "*", "∘": "o", "∂": "d", "∑": "sum", "‑": "-", "│": "|", "┃": "|", "•": "*", "°": " deg",
    "Σ": "sum", "⌈": "ceil(", "⌉": ")", "⌊": "floor(", "⌋": ")", "∝": "~", "↔": "<->", "█": "#",
    "∪": "u", "∖": "\\", "∼": "~", "⇒": "=>", "≪": "<<", "≫": ">>", "∅": "{}", "µ": "mu", "←": "<-",
    "↦": "->", "∗": "*", "⋆": "*", "₋": "_-", "⊗": "(x)", "⊘": "/",
}  # fmt: skip


def ascii_of(character: str) -> str:
    """Return what stands for a character: its letters, or \\u and its number where there are none."""
    if character in _WRITTEN:
        return _WRITTEN[character]
    name = unicodedata.name(character, "")
    if name.startswith("GREEK "):
        return name.split()[-1].lower().replace("lamda", "lambda")
    if name.startswith("BOX DRAWINGS"):
        return "-"
    if name.startswith("COMBINING"):
        return ""
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    if name.startswith("SUPERSCRIPT"):
        return f"^{plain or '-'}"
    return plain or ascii(character)[1:-1]


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(ascii_of, error.object[error.start : error.end])), error.end


codecs.register_error(NAME, _replace)


def readable(text: str, stream: TextIO | None = None) -> str:
    """Return ``text`` as ``stream``, by default standard output, can show it."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "utf-8"
    return text.encode(encoding, NAME).decode(encoding)


def use() -> None:
    """Let standard output and error show what their encodings lack in this way, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=NAME)
