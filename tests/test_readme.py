"""The README's code runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_your_own_checkpoint(tmp_path: Path) -> None:
    module, example = blocks("python")
    (tmp_path / "mine.py").write_text(module, encoding="utf-8")
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    (commands,) = (block for block in blocks("sh") if "mine.pt" in block)
    shell = commands.replace("python ", f"{sys.executable} ").replace(
        "fedscope ", f"{sys.executable} -m fedscope "
    )
    shell = f"set -e\n{shell}\n{sys.executable} example.py"
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "eigenvalues" in done.stdout
    assert re.search(r"[\d.]+ ± [\d.]+ \(probes\) ± [\d.]+ \(data\)", done.stdout)
    assert {"density.png", "landscape.png"} <= {path.name for path in tmp_path.iterdir()}


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README.read_text(encoding="utf-8"))
    assert links
    assert all((README.parent / link).exists() for link in links), links
