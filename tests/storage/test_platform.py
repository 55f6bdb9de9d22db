import importlib
import sys

import pytest

from fedscope import storage
from fedscope.errors import UserError


def test_windows_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(UserError, match="WSL"):
        importlib.reload(storage)
