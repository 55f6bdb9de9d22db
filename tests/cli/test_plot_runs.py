"""`fedscope plot-runs`: figures of runs from the registry, and again from what it wrote."""

import json
from math import hypot
from pathlib import Path

import pytest

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.figures.embedded_record import read_record
from fedscope.workflows.results.result_cache import digest
from tests.cli.conftest import Command


def test_runs_are_drawn_from_the_registry_and_again_from_the_record(
    fedscope: Command, run: RunFolder
) -> None:
    done = fedscope("plot-runs", "tiny", "--json", "runs.json", "--out", "a.pdf")
    assert (done.code, done.out) == (0, "a.pdf\n"), done.err
    (record,) = json.loads(Path("runs.json").read_text())
    metrics = run.metrics()
    assert record["metrics"]["accuracy"] == [line.accuracy for line in metrics]
    sent = sum(float(str(line.bytes_up)) + float(str(line.bytes_down)) for line in metrics)
    assert record["metrics"]["bytes"][-1] == sent
    assert record["at"]["sha256"] == load_checkpoint(run.final).sha256
    assert read_record(Path("a.pdf"))["checkpoints"] == [record["at"]["sha256"]]
    again = fedscope("plot-runs", "--from", "runs.json", "--out", "b.pdf", "--registry", "none")
    assert again.code == 0, again.err
    assert Path("a.pdf").read_bytes() == Path("b.pdf").read_bytes()
    assert fedscope("plot-runs", "t?n*", "--kind", "bytes", "--out", "c.svg").code == 0


def test_sharpness_is_what_hessian_left(fedscope: Command, run: RunFolder) -> None:
    arguments = ("--samples", "47", "--batch-size", "16", "--probes", "2", "--threads", "1")
    measured = fedscope("hessian", "tiny", *arguments, "--json", "-").json
    others = [
        {}, {"split": "test"}, {"operator": "ggn"}, {"bn": "batch"}, {"engine": "pyhessian"},
        {"augmented": True}, {"loss": "cross-entropy + MAN term"},
    ]  # fmt: skip
    for place, change in enumerate(others):
        strange = measured | {"problem": measured["problem"] | change}
        sealed = json.dumps({"record": strange, "sha256": digest(strange)})
        (run.folder.parent / ".analysis" / f"strange{place}.json").write_text(sealed)
    low, high = measured["trace"]["interval"]
    for name in ("0", "z"):  # less precise ones, the first file and the last
        other = {"value": 5.0, "interval": [low - 9, high + 9]}
        worse = measured | {"trace": measured["trace"] | other}
        sealed = json.dumps({"record": worse, "sha256": digest(worse)})
        (run.folder.parent / ".analysis" / f"{name}-strange.json").write_text(sealed)
    done = fedscope("plot-runs", "tiny", "--kind", "sharpness", "--json", "-", "--out", "a.png")
    for path in (run.folder.parent / ".analysis").glob("*strange*"):
        path.unlink()
    assert done.code == 0, done.err
    (record,) = done.json
    (found,) = [one for one in record["curvature"] if one["samples"] == 47]
    assert found["trace"]["value"] == measured["trace"]["value"]
    assert found["lambda_max"]["value"] == measured["lambda_max"]["value"]
    assert found["lambda_max"]["stderr"] == measured["lambda_max"]["stderr_data"]
    both = (measured["trace"]["stderr_probe"], measured["trace"]["stderr_data"])
    assert found["trace"]["stderr"] == pytest.approx(hypot(*both))


def test_a_record_ends_at_the_round_of_its_checkpoint(fedscope: Command, run: RunFolder) -> None:
    tiny = ("--clients", "2", "--rounds", "2", "--epochs", "1", "--model", "mlp_digits", "--name", "kept")
    assert fedscope("train", *tiny, "--keep-every", "1").code == 0
    for which in ("kept@1", "kept"):
        assert fedscope("hessian", which, "--samples", "32", "--probes", "2", "--json", "h.json").code == 0
    done = fedscope("plot-runs", "kept@1", "--json", "-", "--out", "a.png")
    assert done.code == 0, done.err
    (record,) = done.json
    first = RunFolder(run.folder.with_name("kept")).metrics()[0]
    assert (record["at"]["round"], record["metrics"]["round"]) == (1, [1])
    assert [one["round"] for one in record["curvature"]] == [1]
    assert record["at"]["accuracy"] == first.accuracy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nosuch"], "no run 'nosuch'"),
        (["nosuch-*"], "is named like 'nosuch-*'"),
        (["tiny@client0"], "is the model of a client"),
        (["tiny", "--from", "runs.json"], "do not go together"),
        (["tiny", "--out", "a.jpg"], "suffix .png, .pdf or .svg"),
    ],
)
def test_mistakes_are_told(fedscope: Command, run: RunFolder, arguments: list[str], message: str) -> None:
    done = fedscope("plot-runs", *arguments)
    assert done.code == 2
    assert message in done.err
    assert not list(Path().glob("*.png"))


def test_what_was_not_measured_is_told_with_the_option(fedscope: Command, copied: RunRegistry) -> None:
    done = fedscope("plot-runs", "tiny", "--kind", "layers")
    assert done.code == 2
    assert "--layers" in done.err


def test_a_default_name_overwrites_no_figure_and_a_named_one_is(fedscope: Command) -> None:
    written = [fedscope("plot-runs", "tiny").out for _ in range(3)]
    assert written == ["runs.png\n", "runs-2.png\n", "runs-3.png\n"]
    Path("runs-2.png").write_bytes(b"mine")
    assert fedscope("plot-runs", "tiny", "--out", "runs-2.png").out == "runs-2.png\n"
    assert Path("runs-2.png").read_bytes() == Path("runs.png").read_bytes()
