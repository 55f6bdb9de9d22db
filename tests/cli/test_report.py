import json
import shutil
from pathlib import Path

import click
import pytest
import torch

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.cli import hessian, plot_landscape, report
from fedscope.workflows.sources.targets import Targets
from tests.cli.conftest import Command
from tests.figures.records import landscape
from tests.report.test_report import Page

pytestmark = pytest.mark.slow

FEW = ("--samples", "48", "--threads", "1", "--grid", "3", "--top-k", "2", "--probes", "2",
       "--client-probes", "3")  # fmt: skip


@pytest.fixture(scope="module")
def run(perceptron: RunFolder) -> RunFolder:
    return perceptron


def page() -> Page:
    return Page(Path("report.html").read_text(encoding="utf-8"))


def test_a_report_is_measured_once_and_made_again_from_what_is_kept(
    fedscope: Command, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(run.folder.parent / ".analysis", ignore_errors=True)  # --no-compute shows the fullest
    done = fedscope("report", "tiny", *FEW, "--json", "records.json")
    assert (done.code, done.out) == (0, "report.html\n"), done.err
    first = Path("report.html").read_bytes()
    shown, records = page(), json.loads(Path("records.json").read_text())
    assert [record["schema"] for record in records] == ["fedscope/hessian/1", "fedscope/landscape/1"]
    about = shown.json("page-provenance")
    sha256 = load_checkpoint(run.final).sha256
    assert about["checkpoints"] == [sha256] * 2
    assert about["runs"][0]["checkpoints"]["final.pt"] == sha256
    assert about["runs"][0]["manifest"] == run.manifest().model_dump(mode="json")
    curves = shown.json("page-data")["curves"]
    assert curves == [{"name": "FedAvg", "accuracy": [[m.round, m.accuracy] for m in run.metrics()]}]
    assert records[1]["loss"][1][1] == pytest.approx(records[1]["center_loss"], rel=1e-6)
    assert str(run.folder) not in first.decode()

    def again(*_: object, **__: object) -> None:
        raise AssertionError("it was measured again")

    monkeypatch.setattr("fedscope.workflows.curvature.measure_curvature._measured", again)
    monkeypatch.setattr("fedscope.workflows.landscape.landscape_command.scan", again)
    for more in ((), ("--no-compute",)):
        assert fedscope("report", "tiny", *FEW, *more).code == 0
        assert Path("report.html").read_bytes() == first
    assert fedscope("report", "--record", "records.json").code == 0  # a record alone, without its run
    assert "Convergence" not in page().text


def test_an_interrupted_report_goes_on(
    fedscope: Command, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    arguments = ("report", "tiny@best", *FEW, "--no-clients", "--seed", "7")  # of which nothing is kept
    with monkeypatch.context() as patch:
        patch.setattr("fedscope.workflows.landscape.landscape_command.scan", interrupted)
        assert fedscope(*arguments).code == 130
    assert not Path("report.html").exists()
    monkeypatch.setattr(
        "fedscope.workflows.curvature.measure_curvature._measured", interrupted
    )  # that part is kept
    assert fedscope(*arguments).code == 0


def test_without_computing_it_says_what_to_run(fedscope: Command) -> None:
    done = fedscope("report", "tiny", "--no-compute", "--registry", str(Path("nowhere").absolute()))
    assert done.code == 2
    few = ("--clients", "2", "--rounds", "2", "--epochs", "1", "--keep-every", "1")
    assert fedscope("train", *few, "--registry", "runs", "--name", "new").code == 0
    assert fedscope("report", "--no-compute", "--registry", "runs").code == 0  # the newest run
    assert "fedscope hessian new --density" in page().text
    assert [words for level, words in page().headings if level == 2] == [
        "Summary", "Runs", "Curvature", "Convergence", "Updates and local training", "Provenance",
    ]  # fmt: skip


def test_kept_rounds_are_slid_through(fedscope: Command) -> None:
    few = ("--clients", "2", "--rounds", "3", "--epochs", "1", "--keep-every", "1", "--save-clients", "none")
    assert fedscope("train", *few, "--model", "mlp_digits", "--registry", "runs", "--name", "kept").code == 0
    done = fedscope("report", "kept", *FEW, "--rounds", "1:3:1", "--registry", "runs")
    assert done.code == 0, done.err
    assert "no H_N and H_D" in done.err
    (plane,) = page().json("page-data")["planes"]
    assert plane["rounds"] == [1, 2, 3]
    assert len(plane["views"]) == 3  # the last round is the final model
    assert [attrs["max"] for _, attrs in page().tags if "data-rounds" in attrs] == ["2"]
    words = [view["caption"] for view in plane["views"]]
    assert ["along the directions of kept" in text for text in words] == [False, True, True]
    assert "curve-lambda_max" not in page().json("page-data")["charts"]  # of one round
    along = ("--rounds", "all", "--samples", "48", "--probes", "2", "--registry", "runs")
    assert fedscope("hessian", "kept", *along).code == 0
    assert fedscope("report", "kept", "--rounds", "1:3", "--no-compute", "--registry", "runs").code == 0
    (line,) = [
        one for one in page().json("page-data")["charts"]["curve-lambda_max"]["data"] if "marker" in one
    ]
    assert line["x"] == [1, 2, 3]
    assert page().json("page-data")["planes"] == [plane]
    done = fedscope("report", "kept", *FEW, "--rounds", "7:9:1", "--registry", "runs")
    assert (done.code, "it has 1, 2, 3" in done.err) == (2, True)


def test_a_landscape_becomes_a_page(fedscope: Command, run: RunFolder) -> None:
    done = fedscope("plot-landscape", "tiny", "--samples", "48", "--grid", "3", "--out", "x.html")
    assert (done.code, done.out) == (0, "x.html\n"), done.err
    shown = Page(Path("x.html").read_text())
    assert [words for level, words in shown.headings if level == 2] == ["Loss landscapes", "Provenance"]
    chain = fedscope("runs", "show", "--provenance", "x.html", "--json").json
    assert [link["kind"] for link in chain][:3] == ["figure", "analysis", "code"]
    (found,) = (link for link in chain if link["kind"] == "checkpoint")
    assert (found["sha256"], found["fault"]) == (load_checkpoint(run.final).sha256, None)


BROKEN = {
    "text": "{",
    "other": {"schema": "fedscope/other/1"},
    "nothing": None,
    "short": landscape() | {"loss": [[1.0]]},
    "words": landscape() | {"center_loss": "<script>"},
    "lender": landscape() | {"directions_of": {"run": "one"}},
    "marks": landscape() | {"marks": [{"label": "a", "at": [0.0], "distance": 0.0}]},
    "cut": {"schema": "fedscope/hessian/1", "checkpoint": {"sha256": "a"}},
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--out", "report.pdf"], "with the suffix .html"),
        (["tiny", "--out", "text.json/report.html"], "cannot write"),
        (["tinny"], "did you mean 'tiny'?"),
        (["tiny", "--rounds", "1-3"], "FIRST:LAST:STEP"),
        (["tiny", "--rounds", "1:3:0"], "FIRST:LAST:STEP"),
        (["tiny", "--rounds", "3:1:1"], "FIRST:LAST:STEP"),
        (["--record", "absent.json"], "no such file"),
        (["--record", "text.json"], "holds no record"),
        (["--record", "other.json"], "is no record of"),
        (["--record", "nothing.json"], "is no record of"),
        (["--record", "short.json"], "loss is no grid of 11 × 11 numbers"),
        (["--record", "words.json"], "center_loss"),
        (["--record", "lender.json"], "directions_of.sha256 is missing"),
        (["--record", "marks.json"], "a mark has not a coordinate per axis"),
        (["--record", "cut.json"], "problem is missing"),
    ],
)
def test_bad_input_is_one_line(fedscope: Command, arguments: list[str], message: str) -> None:
    for name, content in BROKEN.items():
        Path(f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    done = fedscope("report", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done.err
    assert message in done.err
    assert not Path("report.html").exists()


def test_the_report_goes_on_from_what_hessian_measured(fedscope: Command) -> None:
    size = ("--model", "mlp_digits", "--clients", "3", "--rounds", "2", "--epochs", "1")
    assert fedscope("train", *size, "--name", "small").code == 0
    few = ("--samples", "96", "--threads", "1", "--batch-size", "32")
    first = fedscope("hessian", "small", *few, "--trace-rtol", "0.03", "--json", "-").json
    outlook = fedscope("report", "small", *few, "--grid", "3", "--dry-run", "--json", "-").json
    assert outlook[0]["reused"] == ["eigenvalues", "trace"]
    done = fedscope("report", "small", *few, "--grid", "3", "--client-probes", "4", "--json", "r.json")
    assert done.code == 0, done.err
    (record, *_) = json.loads(Path("r.json").read_text())
    assert "trace, products" not in done.err  # as sure as the report asks for
    assert "λ_max, products" not in done.err
    assert (record["trace"], record["eigenvalues"]) == (first["trace"], first["eigenvalues"])
    assert record["reused"] is False
    assert fedscope("report", "small", *few, "--grid", "3", "--top-k", "5", "--json", "r.json").code == 0
    (record, *_) = json.loads(Path("r.json").read_text())
    assert len(record["eigenvalues"]) == 5
    assert fedscope("report", "small", *few, "--grid", "3", "--json", "r.json").code == 0
    assert json.loads(Path("r.json").read_text())[0]["eigenvalues"] == record["eigenvalues"]
    assert record["lambda_max"]["value"] == pytest.approx(first["lambda_max"]["value"], rel=1e-4)
    assert record["density"]
    assert record["cross_client"]
    again = fedscope("hessian", "small", *few, "--top-k", "3", "--density", "--json", "-")
    assert "products" not in again.err
    assert again.json["reused"]
    assert again.json["eigenvalues"] == record["eigenvalues"][:3]
    assert again.json["cross_client"] is None
    changed = fedscope("hessian", "small", *few, "--seed", "1", "--json", "-")
    assert not changed.json["reused"]


def test_one_default_for_samples_and_seed() -> None:
    for command in (hessian.command, plot_landscape.command, report.command):
        context = click.Context(command)
        options = {option.name: option for option in command.params}
        assert options["seed"].get_default(context) == 0
        assert options["samples"].process_value(context, None) is None
    assert (Targets(Path()).count, Targets(Path(), data="mine:batches").count) == (1024, None)


def test_a_saved_record_of_clients_is_shown_as_it_is(fedscope: Command) -> None:
    few = ("--samples", "32", "--threads", "1", "--only", "loss,drift", "--json", "clients.json")
    assert fedscope("clients", "tiny", *few).code == 0
    saved = json.loads(Path("clients.json").read_text())
    saved["flatness"][0]["cells"][0]["mean"]["value"] = 123.0  # so that it cannot be the registry's
    Path("clients.json").write_text(json.dumps(saved))
    for about in ((), ("tiny", "--no-compute")):
        assert fedscope("report", *about, "--record", "clients.json").code == 0
        assert page().text.count("Where clients part") >= 1
        assert page().text.count("tiny@2: 3 clients – Flatness") == 1
        assert "123.0" in page().text
    Path("bad.json").write_text(json.dumps({**saved, "clients": saved["clients"][:1]}))
    refused = fedscope("report", "--record", "bad.json")
    assert refused.code == 2
    assert "is not of 1 clients" in " ".join(refused.err.split())


def test_a_network_of_ones_own_has_a_report(fedscope: Command, tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 3).state_dict(), "mine.pt")
    (tmp_path / "linear.py").write_text(
        "import torch\n"
        "def net():\n    return torch.nn.Linear(2, 3)\n"
        "def data():\n"
        "    inputs = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))\n"
        "    return [(inputs, torch.arange(30) % 3)]\n"
    )
    own = ("report", "mine.pt", "--model", "linear:net", "--data", "linear:data", "--registry", "runs")
    done = fedscope(*own, "--grid", "3", "--top-k", "2", "--probes", "2")
    assert (done.code, done.out) == (0, "report.html\n"), done.err
    assert "H_N" not in done.err
    first = page()
    assert "mine.pt" in first.text
    assert fedscope(*own, "--no-compute").code == 0
    assert page().headings == first.headings
    assert fedscope("report", "mine.pt", "--no-compute").code == 2  # which network it is, nobody said
