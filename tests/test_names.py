"""The package's own names: there without an import of torch, and the analysis' own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fedscope
import fedscope.landscape as analysis


def test_the_names_of_the_analysis_are_listed_and_found_without_importing_them() -> None:
    assert set(analysis.__all__) < set(fedscope.__all__) < set(dir(fedscope))
    assert fedscope.__all__ == sorted(fedscope.__all__)
    assert all(getattr(fedscope, name) is getattr(analysis, name) for name in analysis.__all__)
    assert all(hasattr(fedscope, name) for name in fedscope.__all__)
    code = "import sys, fedscope; assert 'Hessian' in dir(fedscope); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'Hesian'"):
        fedscope.Hesian  # noqa: B018


def test_the_analysis_imports_what_is_asked_for() -> None:
    code = """
import sys
import fedscope.landscape
assert "torch" not in sys.modules
from fedscope.landscape import Batches
assert "fedscope.landscape.loss.batches" in sys.modules
assert "fedscope.landscape.spectral.eigenpairs" not in sys.modules
assert fedscope.landscape.Batches is Batches is vars(fedscope.landscape)["Batches"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_package_of_stated_names_works_from_an_archive(tmp_path: Path) -> None:
    """Names are read by the loader, which may have no file."""
    with zipfile.ZipFile(tmp_path / "kept.zip", "w") as archive:
        archive.writestr(
            "stated/__init__.py",
            "from typing import TYPE_CHECKING\n"
            "from fedscope.deferred_names import DeferredNames\n"
            "if TYPE_CHECKING:\n"
            "    from stated.one import number as number\n"
            "_NAMES = DeferredNames(__name__)\n"
            "__all__ = _NAMES.all\n"
            "def __getattr__(name):\n"
            "    return _NAMES.get(name)\n",
        )
        archive.writestr("stated/one.py", "number = 7\n")
    code = "import stated; assert stated.__all__ == ['number'] and stated.number == 7"
    path = os.pathsep.join([str(tmp_path / "kept.zip"), *sys.path])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})
