import json
import shutil
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry import index
from fedscope.checkpoints.registry.addresses import address_of, addresses
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.cli.main import call
from fedscope.errors import UserError


@pytest.fixture
def registry(run: RunFolder, tmp_path: Path) -> RunRegistry:
    """Three copies of one run, created a day apart, the last one unfinished."""
    for day, name in enumerate(("b", "a", "c"), 1):
        copy = RunFolder(shutil.copytree(run.folder, tmp_path / name))
        manifest = copy.manifest().model_copy(
            update={"name": name, "created": f"2026-01-0{day}T00:00:00+00:00"}
        )
        copy.write_manifest(manifest)
    RunFolder(tmp_path / "c").final.rename(RunFolder(tmp_path / "c").last)
    return RunRegistry(tmp_path)


def test_rows_are_newest_first_and_true(registry: RunRegistry, run: RunFolder) -> None:
    rows = registry.rows()
    assert [row["name"] for row in rows] == ["c", "a", "b"]
    assert [row["status"] for row in rows] == ["unfinished", "finished", "finished"]
    accuracies = [float(str(m.accuracy)) for m in run.metrics()]
    assert (rows[0]["accuracy"], rows[0]["best"], rows[0]["done"]) == (accuracies[-1], max(accuracies), 2)
    assert (rows[0]["method"], rows[0]["partition"]) == ("fedavg", "dirichlet_balanced 0.5")


def test_the_index_can_be_deleted_and_follows_the_files(registry: RunRegistry) -> None:
    before = registry.rows()
    (registry.root / "index.sqlite").unlink()
    assert registry.rows() == before
    shutil.rmtree(registry.root / "a")
    RunFolder(registry.root / "b").append_metrics(Round(round=3, accuracy=0.99, loss=1.0))
    rows = registry.rows()
    assert [row["name"] for row in rows] == ["c", "b"]
    assert (rows[1]["done"], rows[1]["best"]) == (3, 0.99)


def names_kept(root: Path) -> list[str]:
    with closing(sqlite3.connect(root / "index.sqlite")) as own:
        return sorted(name for (name,) in own.execute("SELECT name FROM rows"))


def test_a_run_that_is_added_meanwhile_keeps_its_row(
    registry: RunRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.rows()
    shutil.move(registry.root / "a", registry.root / ".a")
    assert len(registry.rows()) == 2
    found = layout.names

    def listed(root: Path) -> list[str]:
        before = found(root)
        if (root / ".a").exists() and "a" not in before:
            shutil.move(root / ".a", root / "a")
            assert len(registry.rows()) == 3  # another process makes the row
        return before

    with monkeypatch.context() as patch:  # the first list is only whether there are runs
        patch.setattr(layout, "runs", lambda root: iter(["b"]))
        patch.setattr(layout, "names", listed)
        registry.rows()
    assert names_kept(registry.root) == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["gone", "NULL"])
def test_a_row_that_is_taken_away_between_two_reads_is_made_again(
    registry: RunRegistry, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    before, found = registry.rows(), layout.names

    def taken(root: Path) -> list[str]:
        with closing(sqlite3.connect(root / "index.sqlite")) as own, own:
            own.execute("DELETE FROM rows" if how == "gone" else "UPDATE rows SET row = NULL, seal = NULL")
        return found(root)

    with monkeypatch.context() as patch:  # the first list is only whether there are runs
        patch.setattr(layout, "runs", lambda root: iter(["b"]))
        patch.setattr(layout, "names", taken)
        assert registry.rows() == before
    assert names_kept(registry.root) == ["a", "b", "c"]
    assert registry.rows() == before


def test_only_the_rows_that_are_asked_for_are_read(
    registry: RunRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, read = registry.rows(), list[object]()
    checked = index._checked

    def counted(name: object, *rest: object) -> object:
        read.append(name)
        return checked(name, *rest)

    monkeypatch.setattr(index, "_checked", counted)
    assert registry.newest_rows(2) == (before[:2], 3)
    assert registry.newest().name == "c"
    assert sorted(map(str, read)) == ["a", "c", "c"]
    RunFolder(registry.root / "b").append_metrics(Round(round=3, accuracy=0.99, loss=1.0))
    assert registry.newest_rows(2) == (before[:2], 3)
    assert registry.rows()[2]["done"] == 3


def test_metrics_are_as_long_as_they_like_a_line_at_a_time(
    registry: RunRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = registry.run("c")
    run.write_metrics([Round(round=n, clients=list(range(900)), loss=1.0) for n in range(1, 121)])
    monkeypatch.setattr("fedscope.checkpoints.registry.run_folder.MOST_BYTES", 5_000)
    assert (run.folder / "metrics.jsonl").stat().st_size > 70 * 5_000 > 5_000
    tracemalloc.start()
    assert sum(len(one.clients) for one in run.each_round()) == 900 * 120
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < run.folder.joinpath("metrics.jsonl").stat().st_size  # all rounds take twice that
    monkeypatch.setattr("fedscope.checkpoints.registry.run_folder.MOST_BYTES", 3_000)
    with pytest.raises(UserError, match="line 1 is no record"):
        run.metrics()


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\0" + bytes(200)])
def test_a_broken_index_is_not_believed(registry: RunRegistry, content: bytes) -> None:
    before = registry.rows()
    (registry.root / "index.sqlite").write_bytes(content)
    assert index.faults(registry.root) if content else not index.faults(registry.root)  # an empty one is new
    assert registry.rows() == before


def test_an_index_that_would_run_something_is_not_believed(registry: RunRegistry) -> None:
    before = registry.rows()
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x, x, x, x FROM n"
    with closing(sqlite3.connect(registry.root / "index.sqlite")) as own:
        own.execute("DROP TABLE rows")
        own.execute(f"CREATE VIEW rows(name, signature, row, seal) AS {endless}")
    assert registry.rows() == before
    with pytest.raises(UserError, match="another program's"):
        registry.rebuild()


def foreign_database(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as own, own:
        own.execute("CREATE TABLE thesis (chapter, text)")
        own.execute("INSERT INTO thesis VALUES (1, 'of years')")
    return path.read_bytes()


@pytest.mark.parametrize("linked", [False, True])
def test_another_programs_database_is_left_as_it_is(
    registry: RunRegistry, tmp_path: Path, linked: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    before, path = registry.rows(), registry.root / "index.sqlite"
    path.unlink()
    if linked:
        path.symlink_to(tmp_path / "own.db")
    content = foreign_database(path)
    assert registry.rows() == before
    with pytest.raises(UserError, match="is a link" if linked else "another program's"):
        registry.rebuild()
    where = ["--registry", str(registry.root)]
    assert call(["runs", "list", *where]) == 0
    assert capsys.readouterr().err.count("without an index") == 1
    assert call(["runs", "verify", *where]) == 2
    assert "index.sqlite" in capsys.readouterr().out
    assert path.read_bytes() == content
    assert path.is_symlink() == linked


def test_files_with_odd_names_are_no_checkpoints(registry: RunRegistry) -> None:
    run = registry.run("a")
    (run.folder / "round-x" / "clients").mkdir(parents=True)
    for name in ("round-x/clients/0000.pt", "clients/x.pt", "round-x.pt", "round-1.pt"):
        (run.folder / name).touch()
    assert run.clients(5) == run.clients() == [run.client(k) for k in (0, 1, 2)]
    with pytest.raises(UserError, match=r"@final, @best, @initial, @client0, @client1, @client2$"):
        registry.resolve("a@1")


def test_an_unreadable_run_does_not_hide_the_others(registry: RunRegistry) -> None:
    (registry.root / "a" / "manifest.json").write_text("{")
    rows = {row["name"]: row["status"] for row in registry.rows()}
    assert rows == {"a": "unreadable", "b": "finished", "c": "unfinished"}
    with pytest.raises(UserError, match="cannot be read"):
        registry.run("a").manifest()


def test_a_moved_registry_works(registry: RunRegistry, tmp_path: Path) -> None:
    registry.rows()
    moved = RunRegistry(Path(shutil.copytree(registry.root, tmp_path / "elsewhere" / "deep")))
    assert [row["name"] for row in moved.rows()][:1] == ["c"]
    assert moved.resolve("b") == moved.root / "b" / "final.pt"


@pytest.mark.parametrize(
    ("reference", "file"),
    [
        (None, "c/last.pt"),
        ("c", "c/last.pt"),
        ("b", "b/final.pt"),
        ("b@final", "b/final.pt"),
        ("b@best", "b/best.pt"),
        ("b@2", "b/final.pt"),
        ("b@0", "b/initial.pt"),
        ("b@initial", "b/initial.pt"),
        ("b@client0", "b/clients/0000.pt"),
        ("b@2:anchor", "b/round-0002/anchor.pt"),
    ],
)
def test_addresses(registry: RunRegistry, reference: str | None, file: str) -> None:
    assert registry.resolve(reference) == registry.root / file


def test_means_of_a_kept_round_have_addresses(registry: RunRegistry) -> None:
    run = registry.run("b")
    for path in (run.average("all", 1), run.average("sel", 1), run.average("all")):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        assert registry.resolve(f"b@{address_of(path)}") == path
    assert registry.resolve("b@2:all") == run.average("all")  # of the last round
    listed = [*addresses(run)]
    assert listed == [
        "final",
        "best",
        "all",
        "initial",
        "1:all",
        "1:sel",
        "2:anchor",
        *(f"client{k}" for k in range(3)),
    ]
    assert [address_of(registry.resolve(f"b@{one}")) for one in listed] == listed


def test_a_file_is_its_own_address(registry: RunRegistry, run: RunFolder) -> None:
    assert registry.resolve(str(run.best)) == run.best


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("d", "there is no run 'd' in the registry .*; `fedscope runs list --registry .*` shows all"),
        ("bb", "did you mean 'b'"),
        ("b@1", "it has @final, @best, @initial, @client0, @client1, @client2"),
        ("b@1:all", r"holds no @1:all \(round-0001/all.pt\)"),
        ("b@client7", r"holds no @client7 \(clients/0007.pt\)"),
        ("c@final", r"holds no @final \(final.pt\)"),
        ("b@worst", "use @best"),
        ("b@bset", "unknown checkpoint b@bset; did you mean 'b@best'"),
        ("x/y.pt", "no such file"),
        ("missing.pt", "no such file"),
        ("..x@best", "there is no run '..x'"),
        ("b@", "'b@' is half of RUN@WHICH; use RUN, RUN@best"),
        ("@best", "'@best' is half of RUN@WHICH"),
        (".", "is a folder, not a run"),
    ],
)
def test_bad_addresses(registry: RunRegistry, reference: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        registry.resolve(reference)


def test_an_empty_registry_is_told_from_one_that_is_no_folder(tmp_path: Path) -> None:
    for root, said in ((tmp_path, "; it holds none; name"), (tmp_path / "no", "; that is no folder; name")):
        with pytest.raises(UserError, match=f"registry {root}{said} another registry"):
            RunRegistry(root).run("d")


def test_a_finished_run_without_its_final_model_says_what_it_has(registry: RunRegistry) -> None:
    registry.run("a").final.unlink()
    with pytest.raises(UserError, match=r"'a'.*final\.pt.*last\.pt.*@best"):
        registry.resolve("a")


def test_names_are_taken_once(registry: RunRegistry) -> None:
    manifest = registry.run("a").manifest()
    with pytest.raises(UserError, match="--name"):
        registry.create(manifest)
    assert registry.free_name("a") == "a-2"
    registry.create(manifest.model_copy(update={"name": "a-2"}))
    assert registry.free_name("a") == "a-3"
    for bad in ("../a", "a/b", "", ".hidden", "-a", "a" * 101, "a\n"):
        with pytest.raises(UserError, match="is no run name"):
            registry.create(manifest.model_copy(update={"name": bad}))


def test_a_name_that_another_process_took_meanwhile_is_passed_over(registry: RunRegistry) -> None:
    manifest = registry.run("a").manifest()
    tried = []

    def make(name: str) -> RunFolder:
        tried.append(name)
        if len(tried) == 1:  # another process is quicker
            registry.create(manifest.model_copy(update={"name": name}))
        return registry.create(manifest.model_copy(update={"name": name}))

    assert registry.under_free_name("a", make).name == "a-3"
    assert tried == ["a-2", "a-3"]


def test_a_command_that_is_advised_names_another_registry_than_the_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert RunRegistry(Path("checkpoints")).flag == ""
    assert RunRegistry(Path("my runs")).flag == " --registry 'my runs'"
    monkeypatch.setenv("FEDSCOPE_REGISTRY", "my runs")
    assert RunRegistry(Path("my runs")).flag == ""
    assert RunRegistry(Path("checkpoints")).flag == " --registry checkpoints"


@pytest.mark.parametrize(
    ("name", "mend"), [("a.png", "show --provenance a.png` says"), ("a.pt", "runs add a.pt --model NAME")]
)
def test_a_file_that_is_no_run_is_told_what_it_is_for(
    registry: RunRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mend: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).touch()
    with pytest.raises(UserError, match=f"is no run of the registry .*{mend}"):
        registry.run(name)


def test_a_pattern_is_of_names_and_a_file_is_itself(
    registry: RunRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.create(registry.run("a").manifest().model_copy(update={"name": "a-2"}))
    assert registry.matching("a*@best") == ["a@best", "a-2@best"]
    assert registry.matching("a-[23]") == ["a-2"]
    assert registry.matching("a@1") == ["a@1"]
    with pytest.raises(UserError, match=r"is named like 'z\*'; `fedscope runs list --registry .*` shows all"):
        registry.matching("z*")
    monkeypatch.chdir(tmp_path)
    Path("w[1].pt").touch()
    assert registry.matching("w[1].pt") == ["w[1].pt"]


def test_an_empty_registry_says_what_to_do(tmp_path: Path) -> None:
    assert RunRegistry(tmp_path / "none").rows() == []
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="fedscope train"):
        RunRegistry(tmp_path / "none").resolve(None)


def test_the_clients_of_a_round_are_their_last_uploads_by_then(registry: RunRegistry) -> None:
    run = registry.run("a")
    for round, client in ((1, 0), (1, 1), (2, 1), (3, 0)):
        path = run.client(client, round)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert run.clients(2) == [run.client(0, 1), run.client(1, 2)]
    assert run.clients(3) == [run.client(0, 3), run.client(1, 2)]
    assert run.clients() == [run.client(k) for k in (0, 1, 2)]


def test_a_half_written_line_of_metrics_is_left_out(registry: RunRegistry) -> None:
    for name in ("a", "c"):
        with (registry.root / name / "metrics.jsonl").open("a") as handle:
            handle.write(json.dumps({"round": 3, "accuracy": 1.0})[:-4])
    assert [m.round for m in registry.run("c").metrics()] == [1, 2]
    with pytest.raises(UserError, match="line 3 "):
        registry.run("a").metrics()  # its last model is there, so nobody is writing any more


@pytest.mark.parametrize("line", ["{not json}\n", "[]\n", "\x00\x00\n"])
def test_damaged_metrics_hide_one_run_only(registry: RunRegistry, line: str) -> None:
    path = registry.run("a").folder / "metrics.jsonl"
    path.write_text(path.read_text() + line)
    with pytest.raises(UserError, match="line 3 "):
        registry.run("a").metrics()
    assert {row["name"]: row["status"] for row in registry.rows()}["a"] == "unreadable"
