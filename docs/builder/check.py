"""The check of a built site: every link leads somewhere, and no page asks another host for anything."""

import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "object": "data"}
FETCHED = ("stylesheet", "icon", "preconnect", "dns-prefetch", "preload", "modulepreload", "manifest")


@dataclass
class Contents(HTMLParser):
    """What a page links to, loads, and can be linked at."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag links to, loads and is called."""
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and any(kind in FETCHED for kind in given.get("rel", "").split()):
            self.loaded.append(given.get("href", ""))
        if tag in LOADED and given.get(LOADED[tag]):
            self.loaded.append(given[LOADED[tag]])
        self.loaded += re.findall(r"url\(['\"]?([^'\")]+)", given.get("style", ""))


def read(page: Path) -> Contents:
    """Return the contents of a page."""
    contents = Contents()
    contents.feed(page.read_text(encoding="utf-8"))
    return contents


def faults(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere and for each request to another host; none is well."""
    pages = {page: read(page) for page in sorted(site.rglob("*.html"))}
    found = []
    for page, contents in pages.items():
        name = page.relative_to(site).as_posix()
        targets = [*contents.links, *(one for one in contents.loaded if not _elsewhere(one))]
        found += [f"{name}: asks another host for {one}" for one in contents.loaded if _elsewhere(one)]
        found += [f"{name}: {said}" for one in targets if (said := _fault(site, page, one, pages))]
    for sheet in sorted(site.rglob("*.css")):
        text = re.sub(r"/\*.*?\*/", "", sheet.read_text(encoding="utf-8"), flags=re.DOTALL)
        asked = re.findall(r"(?:url\(|@import\s*)['\"]?((?:https?:)?//[^'\")]+)", text)
        found += [f"{sheet.relative_to(site).as_posix()}: asks another host for {one}" for one in asked]
    return found


def _elsewhere(target: str) -> bool:
    return re.match(r"(https?:)?//", target) is not None


def _fault(site: Path, page: Path, target: str, pages: dict[Path, Contents]) -> str | None:
    """Return what is wrong with a link within the site; None where it leads somewhere."""
    path, anchor = urldefrag(target)
    if re.match(r"([a-z]+:|//)", path):
        return None
    if path.startswith("/"):
        aim = site / path.lstrip("/")
    else:
        aim = (page.parent / unquote(path)).resolve() if path else page
    aim = aim / "index.html" if aim.is_dir() else aim
    if not aim.exists():
        return f"{target} leads nowhere"
    if anchor and aim in pages and unquote(anchor) not in pages[aim].anchors:
        return f"{target} names no place of that page"
    return None


if __name__ == "__main__":
    lines = faults(Path(sys.argv[1]).resolve())
    print("\n".join(lines) or "every link leads somewhere")
    sys.exit(bool(lines))
