"""The package as an index and a reader of the repository see it."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import fedscope

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
HOME = PROJECT["urls"]["Homepage"]
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)]+)\)")
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def index_page() -> str:
    """Return the README as the build writes it for the index."""
    hook = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    page = "".join((ROOT / one["path"]).read_text(encoding="utf-8") for one in hook["fragments"])
    for rule in hook["substitutions"]:
        page = re.sub(rule["pattern"], rule["replacement"], page)
    return page


def test_the_index_page_has_absolute_links_to_the_same_files() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    before, after = LINK.findall(readme), LINK.findall(index_page())
    assert len(before) == len(after) > 20
    for (picture, there), (_, absolute) in zip(before, after, strict=True):
        if there.startswith("https:"):
            assert absolute == there
            continue
        raw = HOME.replace("github.com", "raw.githubusercontent.com") + "/main/"
        assert absolute == (raw if picture else f"{HOME}/blob/main/") + there


def test_every_address_of_the_project_is_of_one_place() -> None:
    assert all(address.startswith(HOME) for address in PROJECT["urls"].values())
    texts = [ROOT / "CITATION.cff", *TEMPLATES, *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    named = {url for path in texts for url in re.findall(r"https://github\.com/[\w-]*fedscope[\w/-]*",
                                                         path.read_text(encoding="utf-8"))}  # fmt: skip
    assert named
    assert all(url.startswith(HOME) for url in named), named


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == fedscope.__version__
    assert (citation["license"], citation["repository-code"]) == (PROJECT["license"], HOME)
    assert [one["name"] for one in citation["authors"]] == [one["name"] for one in PROJECT["authors"]]
    assert all(set(one) >= {"type", "title", "authors", "year"} for one in citation["references"])


def test_the_newest_part_of_the_changelog_is_of_this_version_and_parts_have_dates() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", text, re.MULTILINE).group(1) == fedscope.__version__  # type: ignore[union-attr]
    parts = re.findall(r"^### (.+)$", text, re.MULTILINE)
    dates = [re.search(r"\((\d{4}-\d\d-\d\d)\)$", part) for part in parts]
    assert all(dates), parts
    assert [match[1] for match in dates if match] == sorted(match[1] for match in dates if match)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_form_asks_something(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.stem == "config":
        assert form["contact_links"]
        return
    fields = [one for one in form["body"] if one["type"] != "markdown"]
    assert {"name", "description"} <= set(form)
    assert len({one["id"] for one in fields}) == len(fields) >= 3
    assert all(one["attributes"]["label"] for one in fields)


def test_there_is_a_form_for_each_kind_of_report() -> None:
    assert {path.stem for path in TEMPLATES} == {"config", "bug", "wrong_number", "method"}
