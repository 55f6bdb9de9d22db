"""The blocks of code in the pages, all of which the tests run: where a command or a name is used."""

import ast
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code of a page."""

    page: str  # its path below docs/
    title: str  # the page's
    language: str
    code: str

    @property
    def name(self) -> str | None:
        """The file that a block of Python or TOML is, where its first line names one."""
        found = re.match(r"# ([\w./-]+\.(?:py|toml))\n", self.code)
        return found[1] if found else None


def blocks_of(text: str, page: str = "") -> list[Block]:
    """Return the blocks of a page in their order."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    title = found[1] if found else page
    return [Block(page, title, language, code) for language, code in FENCE.findall(text)]


@dataclass(frozen=True)
class Blocks:
    """The blocks of all pages below a folder."""

    docs: Path

    @cached_property
    def all(self) -> list[Block]:
        """Every block, page by page."""
        pages = sorted(self.docs.rglob("*.md"))
        return [
            block
            for page in pages
            for block in blocks_of(page.read_text(encoding="utf-8"), page.relative_to(self.docs).as_posix())
        ]

    def commands(self, command: str) -> list[tuple[str, str]]:
        """Return path and title of the pages whose shell blocks call a command."""
        called = re.compile(rf"(?:^|[;|&]|\n)\s*{re.escape(command)}\b")
        pages = {
            block.page: block.title
            for block in self.all
            if block.language == "sh" and called.search(block.code)
        }
        return list(pages.items())

    def using(self, name: str) -> Block | None:
        """Return the shortest block of Python that uses a name of ``fedscope``; None where none does."""
        found = [block for block in self.all if block.language == "python" and name in used(block.code)]
        return min(found, key=lambda block: len(block.code), default=None)


@cache
def used(code: str) -> frozenset[str]:
    """Return the names that code imports from ``fedscope`` or takes from it as ``fedscope.NAME``."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "fedscope":
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "fedscope":
            found.add(node.attr)
    return frozenset(found)
