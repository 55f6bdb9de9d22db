import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.data.sets.dataset_catalogue import load
from fedscope.federated.setup.federation import open_run, prepare
from tests.cli.conftest import Command


def test_the_record_by_hand(fedscope: Command) -> None:
    done = fedscope("data", "plot-partition", "--partition", "iid_slices", "--clients", "3", "--json", "-")
    record, labels = done.json, load("digits").train.labels.tolist()
    assert record["schema"] == "fedscope/partition/1"
    assert record["partition"] == {"kind": "iid_slices", "clients": 3}
    assert record["classes"] == list("0123456789")
    assert record["counts"][1] == [labels[479:958].count(label) for label in range(10)]
    assert record["sizes"] == [479, 479, 479]
    shares = np.array(record["counts"][1]) / 479
    assert record["effective_classes"][1] == pytest.approx(np.prod(shares**-shares))
    everyone = np.array([labels.count(label) for label in range(10)]) / 1437
    assert record["total_variation"][1] == pytest.approx(np.maximum(shares - everyone, 0).sum())
    assert record["mean_total_variation"] == pytest.approx(np.mean(record["total_variation"]))


@pytest.mark.parametrize("kind", ["dirichlet_balanced", "dirichlet_equal", "iid"])
def test_it_is_what_training_divides(fedscope: Command, kind: str) -> None:
    fields = {"partition": kind, "clients": 4, "seed": 7, "train_samples": 300}
    fields |= {} if kind == "iid" else {"alpha": 0.6}
    trained = prepare(Settings.model_validate(fields), {})
    labels = trained.dataset.train.labels
    held = [np.bincount(labels[rows].numpy(), minlength=10).tolist() for rows in trained.rows]
    options = [text for key, value in fields.items() for text in (f"--{key.replace('_', '-')}", str(value))]
    record = fedscope("data", "plot-partition", *options, "--json", "-").json
    assert record["counts"] == held
    assert record["train_samples"] == 300


def test_a_runs_division_is_the_runs(fedscope: Command, run: RunFolder, tmp_path: Path) -> None:
    federation = prepare(Settings(clients=5, partition="iid", seed=3, train_samples=200), {})
    open_run(federation, RunRegistry(Path("runs")), "alike", resume=False)
    of_run = fedscope("data", "plot-partition", "alike", "--registry", "runs", "--json", "-").json
    asked = ("--clients", "5", "--partition", "iid", "--seed", "3", "--train-samples", "200")
    same = fedscope("data", "plot-partition", *asked, "--json", "-").json
    assert (of_run.pop("run"), same.pop("run")) == ("alike", None)
    assert (of_run.pop("rows"), same.pop("rows")) == ("stored", None)
    assert of_run == same


def test_a_run_keeps_its_division_whatever_is_drawn_now(
    fedscope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = prepare(Settings(clients=5, seed=3, train_samples=200), {})
    run = open_run(federation, RunRegistry(Path("runs")), "alike", resume=False)
    asked = ("data", "plot-partition", "alike", "--registry", "runs", "--json")
    trained = fedscope(*asked, "-").json
    monkeypatch.setattr(
        "fedscope.data.partition.draw_partition.numpy_stream", lambda *_: np.random.default_rng(0)
    )
    assert fedscope(*asked, "-").json == trained
    run.write_manifest(run.manifest().model_copy(update={"rows": None}))  # as older runs are
    assert "drawn again" in fedscope(*asked, "p.json").err
    record = json.loads(Path("p.json").read_text())
    assert record["rows"] == "redrawn"
    assert record["counts"] != trained["counts"]


@pytest.mark.parametrize("kind", ["bubbles", "bars"])
@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_it_is_drawn_with_what_made_it(fedscope: Command, kind: str, suffix: str) -> None:
    out = f"plots/p.{suffix}"
    done = fedscope(
        "data", "plot-partition", "--kind", kind, "--clients", "6", "--out", out, "--json", "p.json"
    )
    assert (done.code, done.out) == (0, f"{out}\n")
    assert len(json.loads(Path("p.json").read_text())["counts"]) == 6
    content = Path(out).read_bytes()
    assert fedscope("data", "plot-partition", "--kind", kind, "--clients", "6", "--out", out).code == 0
    assert Path(out).read_bytes() == content
    if suffix == "png":
        assert imread(out).std() > 0.05
        assert b'"clients": 6, "kind": "dirichlet_balanced"' in content


def test_fresh_clients_say_so(fedscope: Command) -> None:
    options = ("--partition", "longtail_stateless", "--phi", "0.5", "--rho", "0.01", "--clients", "3")
    record = fedscope("data", "plot-partition", *options, "--json", "-").json
    assert record["fresh_each_round"]
    assert record["partition"] == {"kind": "longtail_stateless", "clients": 3, "phi": 0.5, "rho": 0.01}
    assert max(record["sizes"]) < 718 * 0.3
    assert fedscope("data", "plot-partition", "--json", "-").json["fresh_each_round"] is False


def test_few_classes_are_counted(fedscope: Command) -> None:
    options = ("--partition", "fixed_classes", "--classes-per-client", "2", "--clients", "20")
    record = fedscope("data", "plot-partition", *options, "--json", "-").json
    assert record["partition"] == {"kind": "fixed_classes", "clients": 20, "classes_per_client": 2}
    assert {np.count_nonzero(row) for row in record["counts"]} == {2}


def test_refilled_rows_are_counted(fedscope: Command) -> None:
    options = ("--partition", "dirichlet_equal", "--alpha", "0.1", "--clients", "20")
    redrawn = fedscope("data", "plot-partition", *options, "--json", "-").json
    refilled = fedscope("data", "plot-partition", *options, "--exhausted", "refill", "--json", "-").json
    assert redrawn["sizes"] == refilled["sizes"] == [71] * 20
    assert max(np.sum(redrawn["counts"], 0)) <= max(np.bincount(load("digits").train.labels))
    assert max(np.sum(refilled["counts"], 0)) > max(np.bincount(load("digits").train.labels))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["tiny", "--alpha", "0.1", "--clients", "3"], "leave out --alpha, --clients, or the run"),
        (["tinny"], "did you mean 'tiny'?"),
        (["--alpha", "0"], "needs --alpha above 0, not 0.0"),
        (["--partition", "per_domain"], "several domains"),
        (["--partition", "alike"], "unknown partition 'alike'; choose one of iid,"),
        (["--partition", "longtail_stateless"], "needs --phi, such as 0.1"),
        (["--partition", "shards"], "needs --shards, such as 2"),
        (["--shards", "2"], "--shards has no effect with --partition dirichlet_balanced"),
        (["--clients", "0"], "--clients takes a whole number from 1 up, not 0"),
        (["--out", "p.gif"], "suffix .png, .pdf or .svg"),
        (["--json=."], ". is a folder"),
        (["--train-samples", "2000"], "more than the 1437"),
    ],
)
def test_what_the_user_can_mend(fedscope: Command, options: list[str], message: str) -> None:
    done = fedscope("data", "plot-partition", *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err


def test_other_data_than_the_runs_is_refused(fedscope: Command, run: RunFolder) -> None:
    manifest = run.manifest()
    other = RunFolder(Path("runs") / "other")
    other.folder.mkdir(parents=True)
    data = manifest.data.model_copy(update={"fingerprint": "0" * 64})
    other.write_manifest(manifest.model_copy(update={"name": "other", "data": data}))
    done = fedscope("data", "plot-partition", "other", "--registry", "runs")
    assert (done.code, "is not the data that other was trained on" in done.err) == (2, True)
