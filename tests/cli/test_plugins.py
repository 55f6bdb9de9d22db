"""Methods of other packages, right and wrong, through the commands."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint, save_checkpoint
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from fedscope.federated.methods import known
from fedscope.own import registered
from tests.cli.conftest import Command, Outcome

DRAG = """
from fedscope.federated.record.method import Method
from fedscope.federated.record.vectors import Vector


def extrapolated(at):
    return at.kept + 0.5 * at.state["drag.d"]


def averaged(step):
    d = 0.5 * (step.mean - step.kept)
    return step.kept + d, {"drag.d": d}


DRAG = Method(
    name="drag", objective="ℓ(w)", source="a test", server=averaged, sends=extrapolated,
    server_state=(Vector("drag.d"),),
)
"""
SMALL = (
    "--model", "mlp_digits", "--clients", "2", "--rounds", "2", "--epochs", "1", "--train-samples", "64",
    "--test-samples", "32", "--registry", "r",
)  # fmt: skip
Install = Callable[..., None]


def forget(*modules: str) -> None:
    known.cache_clear()
    registered.cache_clear()
    for module in modules:
        sys.modules.pop(module, None)


@pytest.fixture
def install(fedscope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a module with a method, or install it anew."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    modules = set[str]()

    def put(code: str, name: str = "drag", target: str = "drag_module:DRAG", version: str = "1.0") -> None:
        module = target.partition(":")[0]
        modules.add(module)
        (folder / f"{module}.py").write_text(code)
        info = folder / f"{module}-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Name: {module}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[fedscope.methods]\n{name} = {target}\n")
        forget(module)

    yield put
    monkeypatch.undo()
    forget(*modules)


def run(name: str) -> RunFolder:
    return RunRegistry(Path("r")).run(name)


def train(fedscope: Command, name: str, *further: str, method: str = "drag") -> Outcome:
    return fedscope("train", "--method", method, "--name", name, *SMALL, *further)


def test_the_manifest_names_the_code_and_what_changes_it_is_refused(
    install: Install, fedscope: Command
) -> None:
    install(DRAG)
    assert train(fedscope, "a", "--save-clients", "all").code == 0
    (code,) = run("a").manifest().methods
    assert (code.method, code.package, code.version, len(code.source)) == ("drag", "drag_module", "1.0", 64)
    more = ("train", "--resume", "--name", "a", "--registry", "r", "--rounds", "3")
    shown = fedscope("runs", "show", "a", "--registry", "r").out
    assert f"drag of drag_module 1.0, {code.source[:8]}" in shown

    install(DRAG.replace("0.5 * at", "0.4 * at"), version="1.1")
    refused = fedscope(*more)
    assert refused.code == 2
    then, now = rf"drag_module 1\.0, {code.source[:8]} then", r"drag_module 1\.1, \w{8} now"
    assert re.search(rf"method drag has changed since training \({then}, {now}\)", refused.err)
    assert refused.err.strip().endswith("if it computes the same, name it: --method drag")
    assert "has changed since training" in fedscope("runs", "verify", "a", "--registry", "r").err
    chain = fedscope("runs", "show", "a", "--provenance", "--registry", "r", "--json").json
    (link,) = [one for one in chain if one["kind"] == "method"]
    assert (link["name"], link["version"], link["this code"]) == ("drag", "1.0", "another")

    allowed = fedscope(*more, "--method", "drag")
    assert allowed.code == 0
    assert "has changed since training" in allowed.err
    install(DRAG)
    assert fedscope(*more[:-1], "4").code == 0


def test_a_run_whose_method_is_gone_says_which(install: Install, fedscope: Command) -> None:
    install(DRAG)
    assert train(fedscope, "a").code == 0
    install("", name="other")
    gone = fedscope("train", "--resume", "--name", "a", "--registry", "r", "--rounds", "3")
    assert "the method drag of drag_module 1.0" in gone.err
    assert "is not installed" in gone.err


def test_fedscope_s_own_methods_are_not_named(install: Install, fedscope: Command) -> None:
    install(DRAG)
    assert train(fedscope, "a", method="fedavg").code == 0
    manifest = json.loads((Path("r") / "a" / "manifest.json").read_text())
    assert not {"methods", "sends"} & manifest.keys()


BREAKS = "raise ValueError('broken')"


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_fault_is_told_and_leaves_the_name_free(install: Install, fedscope: Command, workers: str) -> None:
    install(DRAG.replace("d = 0.5", f"{BREAKS}\n    d = 0.5"))
    broken = train(fedscope, "a", "--workers", workers)
    assert broken.code == 2
    assert "Error: method drag: server (drag_module.averaged) fails: ValueError: broken (" in broken.err
    assert "drag_module.py, line 11)" in broken.err
    assert not (Path("r") / "a").exists()
    install(DRAG)
    assert train(fedscope, "a").code == 0


@pytest.mark.usefixtures("at_once")
def test_a_fault_in_another_worker_is_told(install: Install, fedscope: Command) -> None:
    """Rank 0 trains client 0 here; the fault is in client 1's."""
    code = DRAG.replace("server=averaged", "server=averaged, finish=(end,)").replace(
        "DRAG =", f"def end(at):\n    import torch.distributed as d\n    if d.get_rank():\n        {BREAKS}\n"
        "    return {}\n\n\nDRAG ="
    )  # fmt: skip
    install(code)
    broken = train(fedscope, "a", "--workers", "2")
    assert broken.code == 2, broken.err
    assert "Error: method drag: finish (drag_module.end) fails: ValueError: broken (" in broken.err
    assert not (Path("r") / "a").exists()


def test_rounds_that_are_done_are_kept(install: Install, fedscope: Command) -> None:
    install(DRAG.replace("d = 0.5", f"if step.round == 2:\n        {BREAKS}\n    d = 0.5"))
    assert train(fedscope, "a").code == 2
    assert len(run("a").metrics()) == 1


def test_faulty_records_are_set_aside(install: Install, fedscope: Command) -> None:
    install(DRAG)
    record = "from fedscope.federated.record.method import Method\nfrom fedscope.federated.record.options "
    record += "import Option\nM = Method(name='{}', objective='l', source='me'{})\n"
    install(record.format("fedavg", ""), name="fedavg", target="taking:M")
    install(record.format("odd", ", options=Option('odd.a', 1.0, 'a')"), name="odd", target="odd:M")
    listed = fedscope("methods", "list", "-v")
    assert listed.code == 0
    assert "'fedavg', which is taken" in listed.out
    assert "options takes a tuple of Options" in listed.out
    assert fedscope("methods", "show", "fedprox").code == 0
    assert train(fedscope, "a", method="fedavg").code == 0
    refused = train(fedscope, "b", method="odd")
    assert (refused.code, "method odd: options takes" in refused.err) == (2, True)


def test_an_anchor_is_addressed_and_named(install: Install, fedscope: Command) -> None:
    install(DRAG)
    assert train(fedscope, "a").code == 0
    missing = fedscope("hessian", "a@1:anchor", "--registry", "r")
    assert missing.code == 2
    assert "run 'a' holds no @1:anchor; it has @2:anchor: " in missing.err
    assert "`fedscope train --save-clients all`" in missing.err
    measured = fedscope("hessian", "a@2:anchor", "--top-k", "1", "--registry", "r")
    assert "a@2:anchor (sent)" in measured.out
    assert "⚓" not in measured.out + measured.err


def test_a_client_s_upload_of_a_round_has_an_address(install: Install, fedscope: Command) -> None:
    install(DRAG)
    assert train(fedscope, "a", "--save-clients", "all").code == 0
    store = RunRegistry(Path("r"))
    assert store.resolve("a@1:client0") == run("a").client(0, 1)
    described = fedscope("hessian", "a@1:client1", "--top-k", "1", "--registry", "r", "--json").json
    assert described["checkpoint"]["round"] == 1
    assert "holds no @3:client0" in fedscope("hessian", "a@3:client0", "--registry", "r").err


def test_the_model_that_was_kept_is_no_anchor_of_a_method_that_sends(
    install: Install, fedscope: Command
) -> None:
    install(DRAG)
    assert train(fedscope, "a", "--save-clients", "all", "--keep-every", "1").code == 0
    found = run("a")
    assert found.manifest().sends
    assert list(verify_run(found)) == []
    kept = load_checkpoint(found.after_round(1))
    save_checkpoint(found.anchor(2), kept.state, kept.info)
    (fault,) = verify_run(found)
    assert fault.path == "a/round-0002/anchor.pt"
    assert fault.problem == "holds average 'cld', and by its name average 'sent'"
