from pathlib import Path

import pytest

from builder.links import outside, turned

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "link", "becomes"),
    [
        ("figures.md", "[gallery](../figures/README.md)", "[gallery](gallery/README.md)"),
        ("papers/man.md", "[t](../../figures/man/table1-cpu.md#x)", "[t](../gallery/man/table1-cpu.md#x)"),
        ("index.md", "![p](../figures/headline.png)", "![p](gallery/headline.png)"),
        ("figures.md", "[`papers`](../checkpoints/README.md)", "[`papers`](project/checkpoints.md)"),
        ("methods.md", "[models](../src/fedscope/models)", "models (`src/fedscope/models`)"),
        ("methods.md", "[`a.py`](../src/fedscope/errors.py)", "`a.py`"),
        ("gallery/README.md", "[r](../docs/figures.md)", "[r](../figures.md)"),
        ("project/checkpoints.md", "[r](../docs/figures.md)", "[r](../figures.md)"),
        ("methods.md", "[x](data.md#y) [z](#w) [h](https://a.example/b)", None),
        ("methods.md", "`[x](../SECURITY.md)`", None),
        ("methods.md", "```text\n[x](../SECURITY.md)\n```", None),
        ("methods.md", "[x](../no/such/file.md)", None),
    ],
)
def test_links_lead_to_where_the_site_has_it(page: str, link: str, becomes: str | None) -> None:
    assert turned(ROOT, f"See\n{link}\n", page) == f"See\n{becomes or link}\n"


def test_what_is_added_is_there() -> None:
    added = outside(ROOT)
    assert {"gallery/README.md", "project/security.md", "gallery/headline.png"} <= set(added)
    assert all(path.is_file() for path in added.values())
