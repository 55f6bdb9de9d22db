import shutil
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run import Run


@pytest.fixture
def own(run: Run, tmp_path: Path) -> Run:
    """A copy of the finished two-round run, to log into."""
    shutil.copytree(run.folder, tmp_path / "registry" / run.name)
    return Run(tmp_path / "registry" / run.name)
