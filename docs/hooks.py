"""What mkdocs calls when it builds the site: generated pages, formulas, links, and the check of all."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from builder import check, formulas, links, pages

ROOT = Path(__file__).parents[1]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the generated pages into the navigation, where an entry such as ``methods/*`` stands for them."""
    config["nav"] = [_expanded(entry, pages.titles(ROOT)) for entry in config["nav"] or []]
    return config


def _expanded(entry: Any, titles: dict[str, str]) -> Any:
    if isinstance(entry, dict):
        return {name: _expanded(inner, titles) for name, inner in entry.items()}
    if not isinstance(entry, list):
        return entry
    found: list[Any] = []
    for inner in entry:
        if isinstance(inner, str) and inner.endswith("/*"):
            folder = inner.removesuffix("*")
            found += [{title: path} for path, title in titles.items() if path.startswith(folder)]
        else:
            found.append(_expanded(inner, titles))
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the pages and pictures of the repository outside ``docs/``."""
    for path, content in pages.generated(ROOT).items():
        files.append(File.generated(config, path, content=content))
    for path, place in links.outside(ROOT).items():
        files.append(File.generated(config, path, abs_src_path=str(place)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and turn links out of ``docs/`` to where the site has what they name."""
    markdown = re.sub(r"<!-- generated: (\S+) -->", lambda found: pages.part(ROOT, found[1]), markdown)
    return links.turned(ROOT, markdown, page.file.src_uri)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Set the formulas."""
    return formulas.set_in(html)


def on_post_build(config: MkDocsConfig) -> None:
    """Refuse a site with a link that leads nowhere or with a page that asks another host for something."""
    faults = check.faults(Path(config.site_dir))
    if faults:
        raise PluginError("\n".join([f"{len(faults)} faults in the site:", *faults[:40]]))
