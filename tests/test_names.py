"""The package's own names: there without an import of torch, and the analysis' own."""

import subprocess
import sys

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
