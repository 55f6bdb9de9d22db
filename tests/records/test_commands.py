"""What reports and messages tell to type names the checkpoint and the registry, as the commands take them."""

from pathlib import Path

import pytest

from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.records.commands import reference, registry_option


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("final.pt", "a"),
        ("last.pt", "a"),
        ("round-0150.pt", "a@150"),
        ("best.pt", "a@best"),
        ("all.pt", "a@all"),
    ],
)
def test_a_checkpoint_is_named_as_it_is_found(file: str, told: str) -> None:
    assert reference("a", f"/elsewhere/a/{file}") == told


def test_the_registry_finds_it_again(run: RunFolder) -> None:
    registry = RunRegistry(run.folder.parent)
    for path in (run.final, run.best):
        assert registry.resolve(reference(run.name, str(path))) == path


def test_a_registry_that_the_command_would_take_anyway_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert registry_option(Path("checkpoints")) == registry_option(tmp_path / "checkpoints") == ""
    assert registry_option(tmp_path / "my runs") == " --registry 'my runs'"
    assert registry_option(tmp_path.parent) == " --registry REGISTRY"
