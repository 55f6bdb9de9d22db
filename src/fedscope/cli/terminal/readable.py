"""Text for a terminal whose encoding lacks a character: λ becomes "lambda", ± "+-", × "x"."""

import codecs
import sys
import unicodedata
from typing import TextIO

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
