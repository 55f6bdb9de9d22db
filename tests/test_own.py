"""Code that a file names: found and hashed without running it, and run untold only where it may be."""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedscope.errors import UserError
from fedscope.factories import called
from fedscope.own import DATASETS, MODELS, digest, is_of_session, located, reference_to, vouched

BOMB = "raise SystemExit('run')\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("bomb_alone.py").write_text(BOMB)
    Path("bomb_package/inner").mkdir(parents=True)
    for file in ("__init__", "inner/__init__", "inner/net"):
        Path(f"bomb_package/{file}.py").write_text(BOMB)
    yield
    assert not [name for name in sys.modules if name.startswith("bomb")]


@pytest.mark.parametrize(
    ("reference", "file"),
    [
        ("bomb_alone:Net", "bomb_alone.py"),
        ("bomb_package:Net", "bomb_package/__init__.py"),
        ("bomb_package.inner.net:Net", "bomb_package/inner/net.py"),
    ],
)
def test_a_file_is_found_and_hashed_without_running_it(reference: str, file: str) -> None:
    assert located(reference) == Path(file).absolute()
    assert digest(reference) == hashlib.sha256(BOMB.encode()).hexdigest()
    assert vouched((reference,), digest(reference), "--model", MODELS, named=False) == ""


def test_two_files_have_one_hash_that_tells_their_order() -> None:
    Path("bomb_alone.py").write_text(BOMB + "\n")
    both = digest("bomb_alone:a", "bomb_package:b")
    assert len(both) == 64
    assert both != digest("bomb_package:b", "bomb_alone:a")
    assert both != digest("bomb_alone:a")
    assert digest("bomb_alone:a", "bomb_alone:b") == digest("bomb_alone:a")
    assert digest("bomb_alone:a", "bomb_none:b") == ""


@pytest.mark.parametrize("reference", ["antigravity:x", "this:x", "json:loads", "pytest:main"])
def test_what_is_installed_is_not_run_on_a_files_word(reference: str) -> None:
    before = set(sys.modules)
    with pytest.raises(UserError, match="outside of this folder"):
        vouched((reference,), digest(reference), "--model", MODELS, named=False)
    assert vouched((reference,), digest(reference), "--model", MODELS, named=True) == ""
    assert set(sys.modules) == before


@pytest.mark.parametrize(
    "reference", ["nowhere:x", "sys:exit", "bomb_package.none:x", "../bomb_alone:x", ":x"]
)
def test_what_has_no_file_is_not_to_be_found(reference: str) -> None:
    with pytest.raises(UserError, match="is not to be found from"):
        vouched((reference,), "0" * 64, "--model", MODELS, named=True)


def test_every_reference_is_looked_at() -> None:
    both = ("bomb_alone:train", "json:loads")
    with pytest.raises(UserError, match=r"json:loads .*folder"):
        vouched(both, digest(*both), "--data", DATASETS, named=False)
    both = ("bomb_alone:train", "bomb_package:test")
    before = digest(*both)
    Path("bomb_package/__init__.py").write_text("# another\n")
    with pytest.raises(UserError, match=r"bomb_package:test .*changed"):
        vouched(both, before, "--data", DATASETS, named=False)


def test_a_file_here_of_the_name_of_a_loaded_module_vouches_for_nothing() -> None:
    assert "json" in sys.modules
    Path("json.py").write_text(BOMB)
    with pytest.raises(UserError, match="outside of this folder"):
        vouched(("json:loads",), digest("json:loads"), "--model", MODELS, named=False)


def test_a_package_vouches_for_the_very_factory_that_it_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscope.own.registered", lambda group: {"theirs": "json:loads"})
    assert vouched(("json:loads",), digest("json:loads"), "--model", MODELS, named=False) == ""
    with pytest.raises(UserError, match=r"json:dumps .*folder"):
        vouched(("json:dumps",), digest("json:dumps"), "--model", MODELS, named=False)


def test_without_a_hash_of_before_nothing_is_the_same() -> None:
    with pytest.raises(UserError, match=r"changed .*\(unknown then"):
        vouched(("bomb_alone:Net",), "", "--model", MODELS, named=False)


def test_a_change_is_refused_or_noted() -> None:
    before = digest("bomb_alone:Net")
    Path("bomb_alone.py").write_text(BOMB + "# another\n")
    changed = rf"has changed since training \({before[:8]} then, {digest('bomb_alone:Net')[:8]} now\)"
    with pytest.raises(UserError, match=f"{changed}.*--model bomb_alone"):
        vouched(("bomb_alone:Net",), before, "--model", MODELS, named=False)
    assert "has changed since" in vouched(("bomb_alone:Net",), before, "--model", MODELS, named=True)


def test_objects_of_a_session_have_names_of_their_own() -> None:
    def made() -> str:
        return "one"

    first = made

    def made() -> str:  # type: ignore[no-redef]  # another of the same name
        return "two"

    names = [reference_to(one) for one in (first, made, first)]
    assert names[0] == names[2] != names[1]
    assert all(map(is_of_session, names))
    assert [called(name, "--model") for name in names] == ["one", "two", "one"]
    assert reference_to(digest) == "fedscope.own:digest"
