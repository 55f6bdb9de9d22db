from pathlib import Path

import pytest

from builder.check import faults

PAGE = '<html><head><link rel="icon" href="icon.png"></head><body><h1 id="top">One</h1>{}</body></html>'


def site(folder: Path, body: str) -> Path:
    (folder / "icon.png").touch()
    (folder / "other.html").write_text(PAGE.format('<p id="λ">two</p>'), encoding="utf-8")
    (folder / "index.html").write_text(PAGE.format(body), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "body",
    [
        '<a href="other.html#λ">two</a>',
        '<a href="other.html#%CE%BB">two</a>',
        '<a href="#top">one</a><a href="">here</a>',
        '<a href="https://elsewhere.example/page">a link is asked for by the reader alone</a>',
        '<a href="/other.html">from the root</a><img src="data:image/png;base64,AA==">',
    ],
)
def test_a_whole_site_has_no_fault(tmp_path: Path, body: str) -> None:
    assert faults(site(tmp_path, body)) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="gone.html">x</a>', "index.html: gone.html leads nowhere"),
        ('<a href="other.html#nowhere">x</a>', "index.html: other.html#nowhere names no place of that page"),
        ('<img src="gone.png">', "index.html: gone.png leads nowhere"),
        ('<img src="https://a.example/x.png">', "index.html: asks another host for https://a.example/x.png"),
        ('<script src="//a.example/x.js"></script>', "index.html: asks another host for //a.example/x.js"),
        (
            '<p style="background: url(http://a.example/x)">',
            "index.html: asks another host for http://a.example/x",
        ),
    ],
)
def test_a_fault_is_named(tmp_path: Path, body: str, said: str) -> None:
    assert faults(site(tmp_path, body)) == [said]


@pytest.mark.parametrize(
    "rule", ["@import 'https://a.example/x.css';", "p { cursor: url(//a.example/x.png) }"]
)
def test_a_style_sheet_asks_nobody(tmp_path: Path, rule: str) -> None:
    (site(tmp_path, "") / "style.css").write_text(f"/* url(https://in.a.comment) */ {rule}")
    assert len(faults(tmp_path)) == 1
