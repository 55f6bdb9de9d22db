import shutil
from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_folder import RunFolder


@pytest.fixture
def own(run: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of the finished two-round run, to log into."""
    shutil.copytree(run.folder, tmp_path / "registry" / run.name)
    return RunFolder(tmp_path / "registry" / run.name)
