"""The commands of the user guide run as printed, one page after the other in one folder."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


@pytest.mark.slow
@pytest.mark.parametrize("page", DOCS, ids=lambda path: path.stem)
def test_the_commands_run(page: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    tools = Path(sys.executable).parent
    script = "\n".join(["set -e", f"PATH={tools}:$PATH", *blocks])
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", DOCS, ids=lambda path: path.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert all((page.parent / link).exists() for link in links), links
