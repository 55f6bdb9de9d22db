"""`fedscope runs` as a user calls it."""

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.code import code_version
from fedscope.checkpoints.registry.deletion import delete_checkpoints
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from tests.checkpoints.cases import manifest, small_run
from tests.cli.conftest import Command, Outcome


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRegistry:
    """Three runs that differ in their settings, the newest unfinished."""
    root = tmp_path / "registry"
    for day, (name, method, rate) in enumerate(
        [("b", "fedavg", 0.1), ("a", "fedprox", 0.01), ("c", "fedavg", 0.05)], 1
    ):
        run = small_run(root, name)
        described = manifest(name)
        settings = described.settings.model_copy(update={"method": method, "lr": rate})
        update = {"settings": settings, "created": f"2026-01-0{day}T00:00:00+00:00"}
        run.write_manifest(described.model_copy(update=update))
    (root / "c" / "final.pt").rename(root / "c" / "last.pt")
    monkeypatch.setenv("FEDSCOPE_REGISTRY", str(root))
    return RunRegistry(root)


@pytest.fixture
def command(fedscope: Command, registry: RunRegistry) -> Command:
    return fedscope


def listed(command: Command, *arguments: str) -> list[str]:
    return [row["name"] for row in command("runs", "list", "--json", *arguments).json]


def test_filters_and_order(command: Command, registry: RunRegistry) -> None:
    assert listed(command) == ["c", "a", "b"]
    assert listed(command, "--method", "fedavg") == ["c", "b"]
    assert listed(command, "--method", "fed*x") == ["a"]
    assert listed(command, "--status", "unfinished") == ["c"]
    assert listed(command, "--status", "finished", "--dataset", "digits", "--sort", "name") == ["a", "b"]
    assert listed(command, "--sort", "lr") == ["a", "c", "b"]
    assert listed(command, "--sort", "-lr") == ["b", "c", "a"]
    command("runs", "tag", "a", "best")
    command("runs", "tag", "a", "good", "--remove")
    assert listed(command, "--tag", "good", "--sort", "name") == ["b", "c"]
    assert listed(command, "--tag", "good", "--tag", "best") == []
    assert command("runs", "list", "--columns", "name, lr", "--sort", "name", "--json").json == [
        {"name": "a", "lr": 0.01}, {"name": "b", "lr": 0.1}, {"name": "c", "lr": 0.05},
    ]  # fmt: skip
    done = command("runs", "list", "--sort", "weather")
    assert done.code == 2
    assert "there is no column 'weather'; use any of name, created" in done.err


def test_a_terminal_is_shown_a_page_and_a_pipe_all(
    command: Command, registry: RunRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedscope.cli.runs.runs.PAGE", 2)
    assert [listed(command, "--page", page) for page in ("1", "2")] == [["c", "a"], ["b"]]
    assert listed(command, "--page", "2", "--sort", "name") == ["c"]
    assert listed(command, "--page", "1", "--method", "fedavg") == ["c", "b"]
    assert command("runs", "list", "--page", "3").err.startswith("Error: there are 3 runs on 2 pages")
    assert len(listed(command)) == 3
    whole = command("runs", "list")
    assert (whole.out.count("resnet"), whole.err) == (3, "")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    shown = command("runs", "list")
    assert shown.out.count("resnet") == 2
    assert shown.err == "page 1 of 2 (3 runs); --page N shows others, `| less` all\n"
    assert len(listed(command)) == 3


def test_a_long_listing_says_how_many_runs_were_read(
    command: Command, registry: RunRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedscope.cli.runs.runs.SOON", 0.0)
    assert command("runs", "list").err.startswith("runs read anew: 3 in ")
    assert command("runs", "list").err.startswith("runs read anew: 0 in ")  # all are in the index


def test_tags(command: Command) -> None:
    assert command("runs", "tag", "a").out == "good paper\n"
    assert command("runs", "tag", "a", "--remove", "good", "paper").out == "no tags\n"
    done = command("runs", "tag", "a", "--remove", "good")
    assert (done.code, "has no tag 'good'" in done.err) == (2, True)
    done = command("runs", "tag", "a", "../b")
    assert (done.code, "is no tag" in done.err) == (2, True)
    assert "good paper" in command("runs", "list").out


def test_an_accuracy_is_a_percentage_in_every_table(command: Command, registry: RunRegistry) -> None:
    (row,) = command("runs", "list", "--columns", "name, accuracy, best", "--method", "*", "--json").json[:1]
    shown = command("runs", "list", "--columns", "name, accuracy, best").out
    assert row["accuracy"] < 1
    assert f"{row['accuracy']:.2%}" in shown
    assert f"{row['best']:.2%}" in shown
    assert f"{row['accuracy']:.2%}" in command("runs", "show", row["name"]).out
    changed = registry.run("a")
    changed.write_metrics(line.edited(accuracy=0.125) for line in changed.metrics())
    assert "12.50%" in command("runs", "diff", "a", "b").out


def test_diff(command: Command) -> None:
    differing = command("runs", "diff", "a", "b", "--json").json
    assert differing == {"method": ["fedprox", "fedavg"], "lr": [0.01, 0.1]}
    assert "fedprox" in command("runs", "diff", "a", "b").out
    assert "the same settings" in command("runs", "diff", "a", "a").out


def test_diff_compares_the_methods_options(command: Command, registry: RunRegistry) -> None:
    for name, options in (("a", {"prox.mu": 0.5, "prox.form": "norm"}), ("b", {"prox.mu": 0.25})):
        found = registry.run(name)
        settings = found.manifest().settings.model_copy(
            update={"method": "fedprox", "lr": 0.1, "options": options}
        )
        found.write_manifest(found.manifest().model_copy(update={"settings": settings}))
    differing = command("runs", "diff", "a", "b", "--json").json
    assert differing == {"option prox.mu": [0.5, 0.25], "option prox.form": ["norm", None]}


def test_delete_asks(command: Command, registry: RunRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    done = command("runs", "delete", "a")
    assert (done.code, "add --yes" in done.err) == (2, True)
    monkeypatch.setattr(sys, "stdin", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})("n\n"))
    assert command("runs", "delete", "a").code == 0
    assert (registry.root / "a").is_dir()
    assert command("runs", "delete", "a", "b", "--yes").out == "deleted a\ndeleted b\n"
    assert [path.name for path in registry.root.iterdir()] == ["c"]


def test_the_clients_alone_are_deleted(fedscope: Command, run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(shutil.copytree(run.folder, tmp_path / run.name))
    kept = copy.client(0, round=1)
    kept.parent.mkdir(parents=True)
    shutil.copy(copy.client(0), kept)
    notes = copy.folder / "clients" / "notes.txt"
    notes.write_text("mine")
    called = ("runs", "delete", run.name, "--clients", "--registry", str(tmp_path))
    done = fedscope(*called)
    assert (done.code, f"the clients of {run.name} needs" in done.err, len(copy.clients())) == (2, True, 3)
    assert fedscope(*called, "--yes").out == f"deleted 4 clients' models of {run.name}\n"
    again = fedscope(*called, "--yes")
    assert (again.code, again.err) == (
        2, f"Error: {run.name}: there are no clients' models, so that nothing was deleted\n",
    )  # fmt: skip
    steps = fedscope("runs", "delete", run.name, "--local-steps", "--yes", "--registry", str(tmp_path))
    assert (steps.code, "there are no models of local steps" in steps.err) == (2, True)
    assert "clients' models" in fedscope("runs", "show", run.name, "--registry", str(tmp_path)).out
    assert (copy.clients(), notes.read_text(), kept.parents[1].exists()) == ([], "mine", False)
    assert (copy.final.is_file(), copy.metrics()) == (True, run.metrics())
    notes.unlink()
    assert fedscope("runs", "verify", "--registry", str(tmp_path)).code == 0


def test_an_unfinished_run_keeps_its_clients(fedscope: Command, run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(shutil.copytree(run.folder, tmp_path / run.name))
    copy.final.rename(copy.last)
    done = fedscope("runs", "delete", run.name, "--clients", "--yes", "--registry", str(tmp_path))
    assert (done.code, "is unfinished" in done.err, len(copy.clients())) == (2, True, 3)


def test_a_global_checkpoint_alone_is_deleted(fedscope: Command, run: RunFolder, tmp_path: Path) -> None:
    copy, best = RunFolder(shutil.copytree(run.folder, tmp_path / run.name)), load_checkpoint(run.best).sha256

    def delete(*names: str, more: str = "--yes") -> Outcome:
        options = [word for name in names for word in ("--checkpoint", name)]
        return fedscope("runs", "delete", run.name, *options, more, "--registry", str(tmp_path))

    for name in ("last.pt", "clients/0000.pt", "manifest.json", "../x.pt"):
        done = delete("best.pt", name)
        assert (done.code, f"{name!r} is no global model that may be deleted" in done.err) == (2, True)
    assert delete("best.pt", more="--clients").code == 2
    assert copy.best.is_file()
    assert delete("best.pt").out == f"deleted 1 global models (best.pt) of {run.name}\n"
    assert "there are no global models (best.pt)" in delete("best.pt").err
    assert copy.manifest() == run.manifest().model_copy(update={"checkpoints_deleted": {"best.pt": best}})
    assert (copy.best.exists(), copy.final.is_file(), copy.metrics()) == (False, True, run.metrics())
    assert "best.pt" in fedscope("runs", "show", run.name, "--registry", str(tmp_path)).out
    anchor = copy.anchor(run.metrics()[-1].round).relative_to(copy.folder).as_posix()
    assert delete(anchor).out == f"deleted 1 global models ({anchor}) of {run.name}\n"
    assert fedscope("runs", "verify", "--registry", str(tmp_path)).code == 0
    copy.client(0).unlink()  # which verify still misses
    assert fedscope("runs", "verify", "--registry", str(tmp_path)).code == 2
    copy.final.rename(copy.last)
    assert "is unfinished" in delete("initial.pt").err


def test_a_run_without_its_final_model_stays_finished(
    fedscope: Command, run: RunFolder, tmp_path: Path
) -> None:
    copy = RunFolder(Path(shutil.copytree(run.folder, tmp_path / run.name)))
    final = load_checkpoint(copy.final).sha256

    def said(*words: str) -> Outcome:
        return fedscope(*words, "--registry", str(tmp_path))

    assert said("runs", "delete", run.name, "--checkpoint", "final.pt", "--yes").code == 0
    assert (copy.final.exists(), copy.manifest().checkpoints_deleted) == (False, {"final.pt": final})
    assert "finished" in said("runs", "list").out
    assert copy.metrics() == run.metrics()
    verified = said("runs", "verify")
    assert (verified.code, f"elsewhere is {run.name}/final.pt" in verified.err) == (0, True)
    assert said("runs", "verify", run.name, "--json").json["elsewhere"] == [f"{run.name}/final.pt"]
    for address in (run.name, f"{run.name}@final"):
        done = said("hessian", address)
        assert (done.code, f"`fedscope runs pull {run.name} git:`" in done.err) == (2, True)
    more = said("train", "--resume", "--name", run.name, "--rounds", "9")
    assert (more.code, "is not here; pull" in more.err) == (2, True)
    assert copy.metrics() == run.metrics()


def test_a_run_whose_final_model_came_back_goes_on(run: RunFolder, tmp_path: Path) -> None:
    copy = RunFolder(Path(shutil.copytree(run.folder, tmp_path / run.name)))
    delete_checkpoints(copy, ["final.pt", "best.pt"])
    shutil.copy(run.final, copy.final)
    copy.extend(copy.manifest().settings.rounds + 1)
    assert (copy.status(copy.manifest()), copy.newest) == ("unfinished", copy.last)
    assert list(copy.manifest().checkpoints_deleted) == ["best.pt"]


def test_a_link_is_not_deleted(command: Command, registry: RunRegistry, tmp_path: Path) -> None:
    shutil.move(registry.root / "a", tmp_path / "elsewhere")
    (registry.root / "a").symlink_to(tmp_path / "elsewhere")
    done = command("runs", "delete", "a", "--yes")
    assert (done.code, "is a link" in done.err) == (2, True)
    assert (tmp_path / "elsewhere" / "final.pt").is_file()


def test_rebuild_restores_the_listing(command: Command, registry: RunRegistry) -> None:
    before = command("runs", "list", "--json").json
    (registry.root / "index.sqlite").write_bytes(b"not a database, and longer than its header would be")
    assert "index.sqlite: damaged" in command("runs", "verify").out
    assert command("runs", "rebuild").out == "3 runs\n"
    assert "index.sqlite" not in command("runs", "verify").out
    assert command("runs", "list", "--json").json == before


def test_a_run_that_is_being_trained_is_not_called_damaged(
    fedscope: Command, run: RunFolder, tmp_path: Path
) -> None:
    copy = RunFolder(Path(shutil.copytree(run.folder, tmp_path / "r" / run.name)))
    copy.best.unlink()
    with copy.locked():
        done = fedscope("runs", "verify", "--registry", "r")
    assert (done.code, "is being trained; verify it when that has ended" in done.out) == (2, True)
    assert "best.pt" not in done.out
    assert "best.pt" in fedscope("runs", "verify", "--registry", "r").out


def test_verify_names_every_fault(fedscope: Command, run: RunFolder, tmp_path: Path) -> None:
    root = tmp_path / "r"
    for name in ("moved", "whole", "mixed", "gone", "edited", "bare"):
        copy = RunFolder(Path(shutil.copytree(run.folder, root / name)))
        copy.write_manifest(run.manifest().model_copy(update={"name": name}))
    verify = ("runs", "verify", "--registry", "r")
    done = fedscope(*verify)
    assert (done.code, done.out) == (0, "60 files, no fault\n")
    content = bytearray((root / "mixed" / "best.pt").read_bytes())
    at = content.find(load_checkpoint(run.best).state["fc.weight"].numpy().tobytes()[:16])
    content[at] ^= 1
    (root / "mixed" / "best.pt").write_bytes(content)
    (root / "mixed" / "clients" / "0000.pt").write_bytes((run.client(1)).read_bytes())
    (root / "moved").rename(root / "elsewhere")
    (root / "gone" / "clients" / "0002.pt").unlink()
    (root / "gone" / "best.pt").unlink()
    (root / "gone" / ".final.pt.x1y2z3__.tmp").touch()
    (root / "gone" / "notes.txt").touch()
    text = (root / "edited" / "metrics.jsonl").read_text().replace('"round": 2', '"round": 3')
    (root / "edited" / "metrics.jsonl").write_text(text)
    (root / "bare" / "manifest.json").unlink()
    (root / ".new.abcdefgh").mkdir()
    shutil.copy(run.final, root / "loose.pt")
    (root / ".analysis" / "products").mkdir(parents=True)
    (root / ".analysis" / "result.json").touch()
    (root / ".analysis" / "products" / ".x.npz.abcdefgh.tmp").touch()
    done = fedscope(*verify)
    assert done.code == 2
    assert "12 faults in" in done.err
    for path, problem in {
        ".analysis/products/.x.npz.abcdefgh.tmp": "left over by a process",
        ".new.abcdefgh": "left over by a process",
        "edited": "metrics.jsonl, line 2 does not match its check",
        "elsewhere/manifest.json": "is of a run named 'moved'",
        "bare": "has lost its manifest.json",
        "gone/.final.pt.x1y2z3__.tmp": "left over by a process",
        "gone/best.pt": "is missing",
        "gone/clients/0002.pt": "is missing",
        "gone/notes.txt": "belongs to no run of ours",
        "loose.pt": "belongs to no run",
        "mixed/best.pt": "weights do not match its content hash",
        "mixed/clients/0000.pt": "holds client 1",
    }.items():
        assert any(line.startswith(f"{path}: ") and problem in line for line in done.out.splitlines()), path
    assert fedscope(*verify, "whole").code == 0
    assert len(fedscope(*verify, "mixed", "--json").json["faults"]) == 2
    assert fedscope("runs", "verify", "--registry", "none").code == 2


def test_weights_for_other_programs(fedscope: Command, run: RunFolder) -> None:
    def weights(path: Path | str) -> dict[str, list[float]]:
        state = torch.load(path, weights_only=True)
        return {name: tensor.tolist() for name, tensor in state.get("state", state).items()}

    assert fedscope("runs", "export", "tiny", "--out", "final.pt").out == "final.pt\n"
    assert weights("final.pt") == weights(run.final)
    assert fedscope("runs", "export", "tiny", "--format", "safetensors", "--out", "final").code == 0
    assert {name: tensor.tolist() for name, tensor in load_file("final").items()} == weights(run.final)
    assert fedscope("runs", "export", "tiny@0", "--out", "begun.pt").code == 0
    assert weights("begun.pt") == weights(run.initial) != weights(run.final)


def test_from_a_figure_back_to_the_code(fedscope: Command, run: RunFolder, tmp_path: Path) -> None:
    flags = ("--samples", "64", "--threads", "1", "--device", "cpu")
    figure = ("plot-landscape", "tiny", *flags, "--directions", "random", "--grid", "3", "--out", "l.png")
    assert fedscope(*figure, "--json", "l.json").code == 0
    for file in ("l.png", "l.json"):
        chain = fedscope("runs", "show", file, "--provenance", "--json").json
        links = {f"{link['kind']} {link['name']}".split("/")[0]: link for link in chain}
        assert not any(link["fault"] for link in chain)
        assert links["data digits"]["fingerprint"] == run.manifest().data.fingerprint
        assert links["code trained"]["source"] == code_version()["source"]
        assert links["code trained"]["this code"] == links["code analysed"]["this code"] == "the same"
        sha256 = next(link["sha256"] for link in chain if link["kind"] == "checkpoint")
        assert sha256 == load_checkpoint(run.final).sha256
        assert fedscope("runs", "verify", file).code == 0
    assert "fingerprint" in fedscope("runs", "show", "l.png", "--provenance").out
    lost = ("runs", "verify", "l.png", "--registry", "empty")
    (tmp_path / "empty").mkdir()
    assert "no checkpoint with this content" in fedscope(*lost).out
    assert fedscope(*lost).code == 2
    (tmp_path / "x.json").write_text("{}")
    done = fedscope("runs", "show", "x.json", "--provenance")
    assert (done.code, "names no analysis" in done.err) == (2, True)


def test_what_steers_a_terminal_is_shown_and_not_sent(command: Command, registry: RunRegistry) -> None:
    run = registry.run("a")
    evil = "\x1b[2J\x1b]0;owned\x07\u202e\x9b31m"
    described = run.manifest()
    run.write_manifest(described.model_copy(update={"versions": {evil: evil}}))
    (run.folder / f"{evil}.txt").touch()
    plain = (["list"], ["show", "a"], ["diff", "a", "b"], ["verify"])
    for arguments in (*plain, *([*a, "--json"] for a in plain), ["show", "a", "--provenance"]):
        done = command("runs", *arguments)
        assert not set("\x1b\x07\u202e\x9b") & set(done.out + done.err), arguments
    assert json.loads(command("runs", "show", "a", "--json").out)["manifest"]["versions"] == {evil: evil}
    assert "\\x1b[2J" in command("runs", "show", "a").out


def test_a_changed_manifest_is_told_in_one_line(command: Command, registry: RunRegistry) -> None:
    path = registry.root / "a" / "manifest.json"
    path.write_text(path.read_text().replace("0.01", "0.02"))
    done = command("runs", "show", "a")
    assert done.code == 2
    assert done.err.startswith("Error: ")
    assert "it does not match its hash; restore it from a copy" in done.err
    assert done.err.count("\n") == 1
    assert {row["name"]: row["status"] for row in command("runs", "list", "--json").json}["a"] == "unreadable"
