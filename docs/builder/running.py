"""How the blocks of a page run: its files are written, and its lines are one script."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path

from builder.blocks import Block, Blocks

# its pages go on from one to the next
TUTORIAL = ("tutorial/train.md", "tutorial/measure.md", "tutorial/draw.md", "tutorial/own.md")

SHOWN = "output_{}.txt"  # what a block printed that a page shows

# blocks that are shown and not run here, by page and file, and where they are run instead
ELSEWHERE: Mapping[tuple[str, str], str] = {
    ("callbacks.md", "older_flower.py"): "tests/adoption/test_flower.py, beside a stand-in",
    ("coming_from/pfl.md", "simulate.py"): "tests/adoption/test_pfl.py, where pfl is installed",
    ("foreign.md", "client_app.py"): "tests/adoption/flower_app.py, where Flower is installed",
    ("foreign.md", "server_app.py"): "tests/adoption/flower_app.py, where Flower is installed",
}


def units(docs: Path) -> dict[str, list[Block]]:
    """Return the blocks that run in one folder: of a page, or of the whole tutorial."""
    found = {page: list(blocks) for page, blocks in groupby(Blocks(docs).all, key=lambda block: block.page)}
    found["tutorial"] = [block for page in TUTORIAL for block in found.pop(page)]
    return {
        unit: page for unit, page in found.items() if any(one.language in ("sh", "python") for one in page)
    }


def script(page: Sequence[Block], folder: Path) -> str:
    """Write the files that blocks are into a folder, and return the shell script that runs all in order."""
    lines = ["set -e"]
    for number, block in enumerate(page):
        file = block.name or f"block_{number}.py"
        if block.language == "python" or block.name:
            (folder / file).write_text(block.code, encoding="utf-8")
        if block.language == "sh":
            kept = f"{{\n{block.code}}} > {SHOWN.format(number)} 2>&1"
            lines.append(kept if number in shown(page) else block.code)
        elif block.language == "python" and (block.page, file) not in ELSEWHERE and not _named(block, page):
            lines.append(f"python {file}")
    return "\n".join(lines)


def shown(page: Sequence[Block]) -> dict[int, str]:
    """Return what pages show of blocks' output, by the block's place: the text that follows commands."""
    pairs = enumerate(pairwise(page))
    return {
        number: text.code
        for number, (block, text) in pairs
        if (block.language, text.language, block.page) == ("sh", "text", text.page) and "━" in text.code
    }


def _named(block: Block, page: Sequence[Block]) -> bool:
    """Say whether another block runs a block, or imports it."""
    if block.name is None:
        return False
    module = block.name.removesuffix(".py")
    used = re.compile(rf"\b{module}\.py\b|\b{module}:\w|^(?:from|import) {module}\b", re.MULTILINE)
    return any(used.search(other.code) for other in page if other is not block)


def pictures(page: Sequence[Block], docs: Path) -> list[str]:
    """Return the names of the pictures that pages show from their own code."""
    text = "".join((docs / name).read_text(encoding="utf-8") for name in {block.page for block in page})
    return re.findall(r"!\[[^\]]*\]\((?:\.\./)?pictures/([\w-]+\.png)\)", text)
