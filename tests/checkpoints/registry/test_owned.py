"""Whose word lets code of a run's own be run: for each name its own, and for a changed file the user's."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedscope.checkpoints.file.schema import DataSpec, Manifest, ModelSpec
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.owned import data_note, network_note
from fedscope.data.sets.own_data import source_of
from fedscope.errors import UserError
from fedscope.own import digest

NET, DATA, TEST = "owned_net:Net", "owned_data:clients", "owned_test:held"
Note = Callable[..., str]


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """A run whose network, training data and test data are functions of three files."""
    monkeypatch.chdir(tmp_path)
    for reference in (NET, DATA, TEST):
        Path(f"{reference.partition(':')[0]}.py").write_text(f"raise SystemExit('{reference}')\n")
    settings = Settings(model=NET, dataset=DATA, test_data=TEST, partition="own", clients=3)
    return Manifest(
        name="a", created="2026-01-01T00:00:00+00:00", settings=settings, versions={},
        model=ModelSpec(name=NET, source=digest(NET)),
        data=DataSpec(name=DATA, source=source_of(DATA, settings.test_data)),
    )  # fmt: skip


def test_files_as_they_were_are_run_untold(manifest: Manifest) -> None:
    assert (network_note(manifest), data_note(manifest)) == ("", "")


@pytest.mark.parametrize(
    ("note", "changed", "named", "others"),
    [
        (network_note, "owned_net", NET, (None, DATA)),
        (data_note, "owned_data", DATA, (NET, None)),
        (data_note, "owned_test", DATA, (NET, TEST)),
    ],
)
def test_a_name_is_the_users_word_for_itself_alone(
    manifest: Manifest, note: Note, changed: str, named: str, others: tuple[str | None, ...]
) -> None:
    Path(f"{changed}.py").write_text("raise SystemExit('changed')\n")
    for word in ((), others):
        with pytest.raises(UserError, match=r"has changed since training \(\w{8} then"):
            note(manifest, word)
    assert "has changed since training" in note(manifest, (named, None))
