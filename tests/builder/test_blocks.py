from pathlib import Path

from builder.blocks import Block, Blocks, blocks_of, used
from builder.running import ELSEWHERE, script

DOCS = Path(__file__).parents[2] / "docs"
PAGE = """# A title

```python
# mine.py
import fedscope
```

```sh
fedscope hessian a --top-k 3
python mine.py
```

```text
fedscope train
```
"""


def test_blocks_of_a_page_in_their_order() -> None:
    found = blocks_of(PAGE, "a.md")
    assert [(block.language, block.name, block.title) for block in found] == [
        ("python", "mine.py", "A title"),
        ("sh", None, "A title"),
        ("text", None, "A title"),
    ]


def test_commands_and_names_are_found_where_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(PAGE)
    (tmp_path / "b.md").write_text("# B\n\n```python\nfrom fedscope import trace, surface\n```\n")
    blocks = Blocks(tmp_path)
    assert blocks.commands("fedscope hessian") == [("a.md", "A title")]
    assert blocks.commands("fedscope train") == []  # shown, not run
    block = blocks.using("trace")
    assert block is not None
    assert block.page == "b.md"
    assert blocks.using("Hessian") is None


def test_a_name_is_used_where_it_is_imported_or_taken_from_the_package() -> None:
    code = "from fedscope.errors import UserError\nfedscope.train()\nmodel.train()\ntorch.trace\n"
    assert used(code) == {"UserError", "train"}
    assert used("model.train()") == set()


def test_a_page_runs_in_its_order_and_a_file_when_it_is_called(tmp_path: Path) -> None:
    lines = script([*blocks_of(PAGE, "a.md"), Block("a.md", "", "python", "print(1)\n")], tmp_path)
    assert lines.split()[-4:] == ["python", "mine.py", "python", "block_3.py"]
    assert (tmp_path / "mine.py").read_text() == "# mine.py\nimport fedscope\n"


def test_what_runs_elsewhere_does() -> None:
    for (page, file), place in ELSEWHERE.items():
        assert any(block.name == file for block in blocks_of((DOCS / page).read_text("utf-8"), page))
        assert (DOCS.parent / place.split(",")[0]).exists()
