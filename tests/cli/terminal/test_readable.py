"""What a terminal without UTF-8 shows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedscope.cli.terminal.readable import ascii_of

SOURCE = Path(__file__).parents[3] / "src"


def test_every_character_of_ours_has_a_spelling() -> None:
    texts = [path.read_text("utf-8") for suffix in ("py", "toml") for path in SOURCE.rglob(f"*.{suffix}")]
    characters = {character for text in texts for character in text if not character.isascii()}
    assert [c for c in sorted(characters) if "\\u" in ascii_of(c) or not ascii_of(c).isascii()] == []
    assert [ascii_of(c) for c in "λ±×μ…é₁⁴"] == ["lambda", "+-", "x", "mu", "...", "e", "1", "^4"]


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
@pytest.mark.parametrize(
    "asked", ["methods list", "methods list --json", "hessian --help", "train --method é"]
)
def test_without_utf_8_the_text_is_ascii_that_can_be_read(environment: dict[str, str], asked: str) -> None:
    line = [sys.executable, "-m", "fedscope", *asked.split()]
    done = subprocess.run(line, capture_output=True, env={**os.environ, **environment})
    text = (done.stdout + done.stderr).decode("ascii")
    assert done.returncode == (2 if "train" in asked else 0), text
    assert "Traceback" not in text
    if asked == "methods list":
        assert "(mu/2)||w - theta_t||^2" in " ".join(text.split())
