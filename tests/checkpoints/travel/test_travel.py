"""Runs pushed to a folder and pulled from there: whole or not at all, nothing twice, nothing forged."""

import hashlib
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.formats import seal
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.deletion import delete_checkpoints
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.checkpoints.travel import places, push
from fedscope.checkpoints.travel.places import Folder, remote, runs_at
from fedscope.checkpoints.travel.pull import pull_run
from fedscope.checkpoints.travel.push import Journey, push_run, read_list
from fedscope.checkpoints.verification.verify import verify_root, verify_run
from fedscope.errors import UserError
from tests.checkpoints.cases import small_run


class Counted(Folder):
    """A folder that counts what is read and written, and fails at the ``fail``-th object."""

    workers = 1

    def __init__(self, root: Path, fail: int = 0):
        super().__init__(str(root), root)
        self.log: list[str] = []
        self.fail = fail

    @property
    def objects(self) -> list[str]:
        return [place for place in self.log if place.startswith("objects/")]

    def _note(self, place: str) -> None:
        self.log.append(place)
        if self.fail and len(self.objects) == self.fail:
            raise KeyboardInterrupt

    def read(self, place: str) -> Generator[bytes, None, None]:
        self._note(place)
        yield from super().read(place)

    def write(self, place: str, content: Path | bytes, tick: Callable[[int], None]) -> None:
        self._note(place)
        super().write(place, content, tick)


def quiet(_done: int, _total: int | None, _files: str) -> None:
    pass


def pushed(run: RunFolder, place: Folder) -> Journey:
    return push_run(run, place, quiet)


def pulled(root: Path, place: Folder, name: str = "small", called: str | None = None) -> Journey:
    return pull_run(RunRegistry(root), place, name, quiet, called)


def tree(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in layout.files(folder) if layout.kind(name)}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in ``here`` and the folder ``place`` to which it was pushed, to be copied."""
    folder = tmp_path_factory.mktemp("once")
    pushed(small_run(folder / "here"), Counted(folder / "place"))
    return folder


@pytest.fixture
def run(once: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(once / "here", tmp_path / "here")) / "small")


@pytest.fixture
def place(run: RunFolder, once: Path, tmp_path: Path) -> Counted:
    """A folder to which ``run`` was pushed."""
    return Counted(Path(shutil.copytree(once / "place", tmp_path / "place")))


def forge(place: Counted, change: Callable[[dict], None], *, sealed: bool = True) -> None:  # type: ignore[type-arg]
    """Change the list of `small`; seal it anew unless it is to be found."""
    path = place.root / "runs" / "small.json"
    data = json.loads(path.read_text())
    data.pop("sha256")
    change(data)
    path.write_text(json.dumps({**data, "sha256": seal(data) if sealed else "0" * 64}))


def object_of(place: Counted, name: str) -> Path:
    sha256 = json.loads((place.root / "runs" / "small.json").read_text())["files"][name]["sha256"]
    return place.root / f"objects/{sha256[:2]}/{sha256[2:]}"


def test_a_run_arrives_as_it_was(run: RunFolder, place: Counted, tmp_path: Path) -> None:
    assert pulled(tmp_path / "there", place).files == len(tree(run.folder))
    copy = RunFolder(tmp_path / "there" / "small")
    assert tree(copy.folder) == tree(run.folder)
    assert copy.tags() == ("good", "paper")
    assert [*verify_run(copy), *verify_root(RunRegistry(tmp_path / "there"))] == []
    assert not list((tmp_path / "there").glob(".*"))
    for path in (place.root / "objects").rglob("*"):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert path.relative_to(place.root).as_posix() == f"objects/{digest[:2]}/{digest[2:]}"


def test_nothing_travels_twice(run: RunFolder, place: Counted, tmp_path: Path) -> None:
    contents = {content for content in tree(run.folder).values() if content}
    assert len(list((place.root / "objects").rglob("*/*"))) == len(contents)
    assert pushed(run, place).moved == 0
    assert place.objects == []
    assert pulled(tmp_path / "there", place).moved == len(contents) == len(place.objects)
    assert pulled(tmp_path / "there", place).moved == 0
    assert len(place.objects) == len(contents)
    other = small_run(tmp_path / "elsewhere", "other")  # the same weights and metrics in another run
    assert 0 < pushed(other, place).moved < len(contents)


def test_a_place_that_hardly_sends_is_given_up(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Folder("there", tmp_path / "there")
    push_run(run, place, quiet)
    clock = itertools.count(step=30)
    monkeypatch.setattr(places, "monotonic", lambda: next(clock))
    monkeypatch.setattr(Folder, "read", lambda *_: (bytes([byte]) for byte in itertools.repeat(32)))
    with pytest.raises(UserError, match=r"there sends 0 bytes a second; run the same command again later"):
        pull_run(RunRegistry(tmp_path / "here"), place, "small", quiet)


def test_a_push_that_ends_midway_shows_no_run_and_goes_on(run: RunFolder, tmp_path: Path) -> None:
    needed = len({content for content in tree(run.folder).values() if content})
    for fail in range(1, needed + 1):
        root = tmp_path / f"place{fail}"
        with pytest.raises(KeyboardInterrupt):
            pushed(run, Counted(root, fail))
        assert runs_at(Counted(root)) == []
        with pytest.raises(UserError, match="no pushed run"):
            pulled(tmp_path / "there", Counted(root))
        sent = sum(path.is_file() for path in (root / "objects").rglob("*"))
        assert fail - 1 <= sent < needed
        assert pushed(run, Counted(root)).moved == needed - sent
        pulled(tmp_path / f"there{fail}", Counted(root))
        assert tree(tmp_path / f"there{fail}" / "small") == tree(run.folder)


def test_a_pull_that_ends_midway_shows_no_run_and_goes_on(
    run: RunFolder, place: Counted, tmp_path: Path
) -> None:
    needed = len({content for content in tree(run.folder).values() if content})
    for fail in range(1, needed + 1):
        root = tmp_path / f"there{fail}"
        with pytest.raises(KeyboardInterrupt):
            pulled(root, Counted(place.root, fail))
        here = {content for content in tree(root / ".small.pull" / "small").values() if content}
        assert fail - 1 <= len(here) < needed
        assert RunRegistry(root).folders() == []
        assert any("left over" in fault.problem for fault in verify_root(RunRegistry(root)))
        again = Counted(place.root)
        assert pulled(root, again).moved == len(again.objects) == needed - len(here)
        assert tree(root / "small") == tree(run.folder)
        assert (root / "small" / layout.LOCK).is_file()  # so that a reader there is in a writer's way
        assert not list(root.glob(".*"))


def test_what_a_killed_pull_left_is_not_believed(run: RunFolder, place: Counted, tmp_path: Path) -> None:
    collected = tmp_path / "there" / ".small.pull" / "small"
    collected.mkdir(parents=True)
    shutil.copy(run.final, collected)
    turn_a_bit(collected / "final.pt")
    (collected / ".best.pt.0123abcd.tmp").write_bytes(b"half")
    (collected / "clients").mkdir()
    (collected / "clients" / "0001.pt").write_bytes(b"of an older list")
    pulled(tmp_path / "there", place)
    assert tree(tmp_path / "there" / "small") == tree(run.folder)
    assert faults(tmp_path / "there") == []


def faults(root: Path) -> list[str]:
    return [fault.problem for run in RunRegistry(root).folders() for fault in verify_run(run)]


def test_a_run_that_went_on_replaces_its_earlier_state(
    run: RunFolder, place: Counted, tmp_path: Path
) -> None:
    pulled(tmp_path / "there", place)
    run.final.rename(run.last)
    run.append_metrics(Round(round=4, loss=0.1))
    manifest = run.manifest()
    settings = manifest.settings.model_copy(update={"rounds": 5})
    run.write_manifest(manifest.model_copy(update={"settings": settings, "extended": (3,)}))
    pushed(run, place)
    with pytest.raises(UserError, match="another state"):
        pulled(tmp_path / "there", place)
    with pytest.raises(UserError, match="round 4"):
        pushed(RunFolder(tmp_path / "there" / "small"), place)
    pulled(tmp_path / "there", place, called="later")
    assert RunFolder(tmp_path / "there" / "later").manifest().name == "later"
    assert len(RunFolder(tmp_path / "there" / "later").metrics()) == 4
    assert faults(tmp_path / "there") == []


def test_another_run_of_the_name_is_not_replaced(run: RunFolder, place: Counted, tmp_path: Path) -> None:
    other = small_run(tmp_path / "elsewhere")
    other.write_manifest(other.manifest().model_copy(update={"created": "2026-02-02T00:00:00+00:00"}))
    before = tree(place.root)
    with pytest.raises(UserError, match="another run"):
        pushed(other, place)
    assert tree(place.root) == before
    with pytest.raises(UserError, match="taken"):
        pulled(tmp_path / "elsewhere", place)
    assert tree(other.folder)["manifest.json"] == (other.folder / "manifest.json").read_bytes()


def test_a_whole_run_is_not_replaced_by_one_of_its_models(
    run: RunFolder, place: Counted, tmp_path: Path
) -> None:
    alone = RunFolder(Path(shutil.copytree(run.folder, tmp_path / "elsewhere" / "small")))
    alone.final.unlink()
    with pytest.raises(UserError, match=r"final\.pt: is missing"):
        pushed(alone, Counted(tmp_path / "other"))
    alone.write_manifest(alone.manifest().model_copy(update={"partial": True}))
    before = tree(place.root)
    with pytest.raises(UserError, match=r"partial here, without final\.pt"):
        pushed(alone, place)
    assert tree(place.root) == before
    pushed(alone, Counted(tmp_path / "other"))
    alone.untag("good")
    pushed(alone, Counted(tmp_path / "other"))


def result(run: RunFolder, key: str, sha256: str) -> Path:
    """Write a kept result of a model that has this hash."""
    path = run.root / layout.ANALYSIS / f"{key * 32}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"key": key, "record": {"checkpoint": {"sha256": sha256}}}))
    return path


def test_results_of_a_run_s_models_travel_with_it(run: RunFolder, place: Counted, tmp_path: Path) -> None:
    best, final = (load_checkpoint(path).sha256 for path in (run.best, run.final))
    delete_checkpoints(run, ["best.pt"])
    own = [result(run, "a", final), result(run, "b", best)]
    result(run, "c", "0" * 64)
    (own[0].parent / "notes.json").write_text(final)
    assert pushed(run, place).moved == 3  # with the manifest
    there = tmp_path / "there" / layout.ANALYSIS
    assert pulled(there.parent, place).files == 8
    assert {path.name: path.read_bytes() for path in there.iterdir()} == {
        path.name: path.read_bytes() for path in own
    }
    own[0].unlink()
    pushed(run, place)  # which has it still
    shutil.rmtree(there)
    assert pulled(there.parent, place).moved == 2
    (there / own[0].name).write_text("of another version of the code")
    assert (pulled(there.parent, place).moved, len(list(there.iterdir()))) == (0, 2)
    assert (there / own[0].name).read_text() == "of another version of the code"


def test_a_deleted_model_stays_at_the_remote_and_comes_back(
    run: RunFolder, place: Counted, tmp_path: Path
) -> None:
    before = tree(run.folder)
    delete_checkpoints(run, ["best.pt", "final.pt"])
    pushed(run, place)
    assert pulled(tmp_path / "there", place).moved > 0
    assert tree(tmp_path / "there" / "small").keys() == before.keys()
    assert pulled(run.root, place).moved == 1  # both are one model
    assert {**tree(run.folder), "manifest.json": b""} == {**before, "manifest.json": b""}
    assert (faults(run.root), pulled(run.root, place).moved) == ([], 0)


def test_another_model_than_was_deleted_is_not_taken(run: RunFolder, place: Counted) -> None:
    delete_checkpoints(run, ["final.pt"])
    run.write_manifest(run.manifest().model_copy(update={"checkpoints_deleted": {"final.pt": "0" * 64}}))
    with pytest.raises(UserError, match="nothing was changed"):
        pulled(run.root, place)
    assert (run.final.exists(), [path.name for path in run.root.iterdir()]) == (False, ["small"])


def test_a_list_of_what_is_here_has_no_deleted_model(run: RunFolder) -> None:
    here = Counted(run.root)
    pushed(run, here)
    run.write_manifest(run.manifest().model_copy(update={"partial": True}))
    delete_checkpoints(run, ["final.pt"])
    pushed(run, here)
    assert "final.pt" not in read_list(here, "small").files


def test_a_damaged_run_is_not_pushed(run: RunFolder, tmp_path: Path) -> None:
    before = tree(run.folder)
    (run.folder / "notes.txt").write_text("not a run's, and no fault of its files")
    (run.folder / ".half.tmp").touch()
    (run.folder / "tensorboard").mkdir()
    (run.folder / "tensorboard" / "events").touch()
    pushed(run, Counted(tmp_path / "a"))
    assert read_list(Counted(tmp_path / "a"), "small").files.keys() == before.keys()
    run.best.write_bytes(run.best.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"small/final\.pt|small/best\.pt"):
        pushed(run, Counted(tmp_path / "b"))
    assert not (tmp_path / "b").exists()


def test_a_link_in_a_run_is_not_pushed(run: RunFolder, tmp_path: Path) -> None:
    run.best.unlink()
    run.best.symlink_to("/etc/passwd")
    with pytest.raises(UserError, match=r"best\.pt: is a link"):
        pushed(run, Counted(tmp_path / "b"))
    assert not (tmp_path / "b").exists()


def turn_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def make_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [
        turn_a_bit,
        Path.unlink,
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
        lambda path: (path.unlink(), path.mkdir()),
        make_a_pipe,
    ],
    ids=["bit", "gone", "short", "long", "folder", "pipe"],
)
def test_a_damaged_object_is_told(
    damage: Callable[[Path], object], run: RunFolder, place: Counted, tmp_path: Path
) -> None:
    damage(object_of(place, "final.pt"))
    with pytest.raises(UserError, match=r"objects/") as told:
        pulled(tmp_path / "there", place)
    assert "\n" not in str(told.value)
    assert RunRegistry(tmp_path / "there").folders() == []


def test_an_object_that_was_cut_off_is_sent_again(run: RunFolder, place: Counted, tmp_path: Path) -> None:
    path = object_of(place, "final.pt")
    path.write_bytes(path.read_bytes()[:-1])
    assert pushed(run, place).moved == 1
    pulled(tmp_path / "there", place)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data["files"]["final.pt"].update(sha256="../../../etc/passwd"), "sha256"),
        (lambda data: data["files"]["final.pt"].update(bytes=10**15), "make room"),
        (lambda data: data["files"]["final.pt"].update(bytes=-1), "bytes"),
        (lambda data: data["files"]["final.pt"].update(bytes=7), "damaged or missing"),
        (lambda data: data["files"]["final.pt"].update(link="/etc/passwd"), "link"),
        (lambda data: data["files"].pop("manifest.json"), "lists no run"),
        (lambda data: data["files"].pop("final.pt"), "small"),
        (lambda data: data.update(run="other"), "is of 'other'"),
        (lambda data: data.update(run="../evil"), "is no run name"),
        (lambda data: data.update(created="~ soon"), "of another run"),
        (lambda data: data.update(format="fedscope/remote/9"), "upgrade fedscope"),
        (lambda data: data.update(format="fedscope/run/2"), "fedscope did not write it"),
        (lambda data: data.update(in_place=True), "missing"),
    ],
)
def test_a_forged_list_is_refused(
    change: Callable[[dict], None],  # type: ignore[type-arg]
    says: str,
    place: Counted,
    tmp_path: Path,
) -> None:
    forge(place, change)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=says) as told:
        pulled(tmp_path / "there", place)
    assert "\n" not in str(told.value)
    assert RunRegistry(tmp_path / "there").folders() == []
    assert {path.relative_to(tmp_path).parts[0] for path in set(tmp_path.rglob("*")) - before} <= {"there"}


@pytest.mark.parametrize(
    "name",
    ["../evil", "/tmp/evil", "..", "a\\..\\evil", "C:evil", "clients/../../evil", "con", "evil.py",
     "./final.pt", "tags/con", "tags/a/b", "tags/..", "tags/../../x", "tags/../a",
     "state/round-0001/../../x"],
)  # fmt: skip
def test_no_name_leads_out_of_the_registry(place: Counted, tmp_path: Path, name: str) -> None:
    forge(place, lambda data: data["files"].update({name: data["files"]["final.pt"]}))
    before = set(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="no file of a run"):
        pulled(tmp_path / "there", place)
    assert set(tmp_path.rglob("*")) == before
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_a_damaged_list_is_told(content: bytes, place: Counted, tmp_path: Path) -> None:
    path = place.root / "runs" / "small.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match="small"):
        pulled(tmp_path / "there", place)
    forged = Counted(place.root)
    path.write_bytes(b"{}")
    with pytest.raises(UserError):
        pulled(tmp_path / "there", forged)


def test_a_list_without_its_seal_is_told(place: Counted, tmp_path: Path) -> None:
    forge(place, lambda data: data["files"].pop("tags/good"), sealed=False)
    with pytest.raises(UserError, match="does not match its hash"):
        pulled(tmp_path / "there", place)


def test_a_link_where_a_run_is_collected_is_not_followed(place: Counted, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".small.pull").symlink_to(victim)
    with pytest.raises(UserError, match="link"):
        pulled(tmp_path / "there", place)
    assert list(victim.iterdir()) == []
    (place.root / "runs" / "small.json").unlink()
    shutil.rmtree(place.root / "objects")
    (place.root / "objects").symlink_to(victim)
    with pytest.raises(UserError, match="link"):
        pushed(RunFolder(tmp_path / "here" / "small"), place)
    assert list(victim.iterdir()) == []


def test_what_a_mistyped_place_sends_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "there" / "runs").mkdir(parents=True)
    (tmp_path / "there" / "runs" / "small.json").write_text("<html>Not here</html>")
    with pytest.raises(
        UserError, match=r"is none, or is damaged .*; give the URL that `fedscope runs push` was"
    ):
        pull_run(RunRegistry(tmp_path / "here"), Folder("there", tmp_path / "there"), "small", quiet)


def test_what_is_pushed_anew_meanwhile_is_told(run: RunFolder, place: Counted, tmp_path: Path) -> None:
    class Changing(Counted):
        def read(self, name: str) -> Generator[bytes, None, None]:
            if name.startswith("objects/"):
                forge(self, lambda data: data.update(rounds=data["rounds"] + 1))
                object_of(self, "final.pt").unlink(missing_ok=True)
            return super().read(name)

    with pytest.raises(UserError, match="anew meanwhile"):
        pulled(tmp_path / "there", Changing(place.root))


def test_a_registry_that_is_its_own_remote_gets_lists_alone(run: RunFolder, tmp_path: Path) -> None:
    root = run.folder.parent
    before = tree(run.folder)
    assert pushed(run, Counted(root)).moved == 0
    assert sorted(path.name for path in root.iterdir() if path.name != "index.sqlite") == ["runs", "small"]
    pulled(tmp_path / "there", Counted(root))
    assert tree(tmp_path / "there" / "small") == before == tree(run.folder)
    assert [*verify_root(RunRegistry(root)), *verify_run(run)] == []
    (root / "runs").rename(tmp_path / "lists")
    small_run(root, "runs")
    with pytest.raises(UserError, match="another URL"):
        pushed(run, Counted(root))


def test_a_run_in_training_is_not_pushed(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(_run: RunFolder, **_how: object) -> None:
        with pytest.raises(UserError, match="training"), run.locked():
            pass

    monkeypatch.setattr(push, "check_run", check)
    pushed(run, Counted(tmp_path / "place"))  # nor trained while it is pushed
    with run.locked(), pytest.raises(UserError, match="training"):
        pushed(run, Counted(tmp_path / "place"))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3://KEY:SECRET@bucket/runs", "leave them out"),
        ("https://user:SECRET@example.org/runs", "leave them out"),
        ("https:/user:SECRET@example.org/runs", "leave them out"),
        ("https://example.org/runs?X-Amz-Signature=SECRET", "leave them out"),
        ("gs://bucket/runs#SECRET", "leave them out"),
        ("ftp://example.org/runs", "cannot travel by ftp:"),
        ("simplecache::s3://bucket", "cannot travel by simplecache:"),
    ],
)
def test_urls_that_are_refused_are_not_repeated(url: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as told:
        remote(url)
    assert "SECRET" not in str(told.value)


def test_urls_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("a b", f"{tmp_path}/a b", f"file://{tmp_path}/a%20b", f"file:{tmp_path}/a%20b", "file:a%20b"):
        found = remote(url)
        assert isinstance(found, Folder)
        assert found.root.resolve() == tmp_path / "a b"


def test_two_pulls_of_one_run_do_not_meet(place: Counted, tmp_path: Path) -> None:
    class Second(Counted):
        def read(self, name: str) -> Generator[bytes, None, None]:
            if name.startswith("objects/"):
                with pytest.raises(UserError, match="another process"):
                    pulled(tmp_path / "there", place)
            return super().read(name)

    pulled(tmp_path / "there", Second(place.root))
    assert faults(tmp_path / "there") == []


def test_a_pull_that_was_killed_after_its_end_leaves_nothing(place: Counted, tmp_path: Path) -> None:
    pulled(tmp_path / "there", place)
    (tmp_path / "there" / ".small.pull").mkdir()
    pulled(tmp_path / "there", place)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["small"]


class Long(Counted):
    """A folder whose objects go on and on, up to ``parts`` parts; ``given`` counts them."""

    parts, given = 500, 0

    def read(self, place: str) -> Generator[bytes, None, None]:
        yield from super().read(place)
        for _ in range(self.parts if place.startswith("objects/") else 0):
            self.given += 1
            yield b"more"


def test_no_part_more_than_listed_is_taken(place: Counted, tmp_path: Path) -> None:
    long = Long(place.root)
    with pytest.raises(UserError, match="damaged or missing"):
        pulled(tmp_path / "there", long)
    assert long.given <= 4  # one of each content


@pytest.mark.parametrize("way", ["pull", "push"])
def test_what_is_on_the_way_is_told_before_it_has_arrived(
    place: Counted, run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(push, "LOOK", 0.01)
    told, seen = threading.Event(), list[tuple[int, int | None, str]]()

    class Slow(Counted):
        """A folder that waits with the second half of a file until the first was told of."""

        def read(self, name: str) -> Generator[bytes, None, None]:
            for part in super().read(name):
                yield part[: len(part) // 2]
                assert not name.startswith("objects") or told.wait(60)
                yield part[len(part) // 2 :]

        def write(self, place: str, content: Path | bytes, tick: Callable[[int], None]) -> None:
            def ticked(size: int) -> None:
                tick(size // 2)
                assert told.wait(60)
                tick(size)

            super().write(place, content, ticked)

    def report(done: int, total: int | None, files: str) -> None:
        seen.append((done, total, files))
        if done and files.startswith("0 of"):
            told.set()

    monkeypatch.setattr(push, "KB", 1)
    if way == "pull":
        pull_run(RunRegistry(tmp_path / "there"), Slow(place.root), "small", report)
    else:
        push_run(run, Slow(tmp_path / "elsewhere"), report)
    assert told.is_set()
    assert seen[-1][0] == seen[-1][1] == sum(map(len, {*tree(run.folder).values()}))


def test_what_is_on_the_way_ends_with_an_interruption(place: Counted, tmp_path: Path) -> None:
    waiting = threading.Event()

    class Slow(Counted):
        parts, workers = 0, 2

        def read(self, name: str) -> Generator[bytes, None, None]:
            if object_of(self, "final.pt").name not in name:
                yield from super().read(name)
                return
            for self.parts in range(1000):
                waiting.set()
                time.sleep(0.005)
                yield b""

    def report(_done: int, _total: int | None, _files: str) -> None:
        waiting.wait(60)
        raise KeyboardInterrupt

    slow = Slow(place.root)
    with pytest.raises(KeyboardInterrupt):
        pull_run(RunRegistry(tmp_path / "there"), slow, "small", report)
    assert slow.parts < 900
