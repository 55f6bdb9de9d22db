"""Pages, pictures and tables of the repository outside ``docs/`` that the site has too, and links to them."""

import os
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PROJECT = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code_of_conduct.md",
    "SECURITY.md": "project/security.md",
    "checkpoints/README.md": "project/checkpoints.md",
}
GALLERY = "gallery"
SHOWN = (".md", ".png", ".csv", ".json", ".tex", ".pdf")
# code within a line stays as it is; the text of a link may hold code
LINK = re.compile(r"`[^`\n]+`|(?P<bang>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"(^```.*?^```|^(?: {4}|\t)[^\n]*)", re.DOTALL | re.MULTILINE)


@cache
def places(root: Path) -> Mapping[str, str]:
    """Return where the site has files of the repository: path below the root → page or file of the site."""
    found = dict(PROJECT)
    for path in sorted((root / "figures").rglob("*")):
        if path.suffix in SHOWN:
            inside = path.relative_to(root / "figures").as_posix()
            found[f"figures/{inside}"] = f"{GALLERY}/{inside}"
    return found


def outside(root: Path) -> dict[str, Path]:
    """Return the files that are added to the site, by their path in it; the README is not among them."""
    return {place: root / path for path, place in places(root).items() if path != "README.md"}


def turned(root: Path, markdown: str, page: str) -> str:
    """Return a page whose links to files of the repository lead to where the site has them.

    A link to a file that the site has not (sources, checkpoints) becomes its text.

    Args:
        root: of the repository.
        markdown: of the page.
        page: its path in the site.
    """
    home = {place: path for path, place in places(root).items()}.get(page, f"docs/{page}")
    if page == PROJECT["README.md"]:
        home = f"docs/{page}"
    pieces = CODE.split(markdown)
    pieces[::2] = [LINK.sub(lambda found: _turned(root, found, home, page), piece) for piece in pieces[::2]]
    return "".join(pieces)


def _turned(root: Path, found: re.Match[str], home: str, page: str) -> str:
    if found["target"] is None:
        return found[0]
    bang, text, target = found["bang"], found["text"], found["target"]
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return found[0]
    aim = posixpath.normpath(posixpath.join(posixpath.dirname(home), path))
    place = places(root).get(aim) or (aim.removeprefix("docs/") if aim.startswith("docs/") else None)
    if place is None:
        if not (root / aim).exists():
            return found[0]  # mkdocs refuses it by name
        return text if text.startswith("`") else f"{text} (`{aim}`)"
    relative = os.path.relpath(place, posixpath.dirname(page) or ".")
    return f"{bang}[{text}]({relative}{mark}{anchor})"
