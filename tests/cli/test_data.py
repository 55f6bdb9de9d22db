from pathlib import Path

import pytest

from fedscope.data.sets.dataset_catalogue import NAMES
from tests.cli.conftest import Command
from tests.data.layouts import make


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDSCOPE_DATA", raising=False)
    monkeypatch.setattr("fedscope.data.reading.shards.fetch", lambda _: pytest.fail("asked the hub"))


def test_list_has_every_data_set_and_where_it_is(fedscope: Command, tmp_path: Path) -> None:
    make("tinyimagenet", tmp_path / "data", classes=2, train=1, test=1)
    listed = {entry["name"]: entry for entry in fedscope("data", "list", "--data-dir", "data", "--json").json}
    assert tuple(listed) == NAMES
    assert listed["digits"]["here"] == "bundled"
    assert listed["tinyimagenet"]["here"] == "in data"
    assert listed["digits5"]["here"] == "not in data"
    assert all(entry["source"] and entry["licence"] for entry in listed.values())
    assert "on the hub" in fedscope("data", "list").out


def test_show_says_where_to_get_it_and_how_to_lay_it_out(fedscope: Command) -> None:
    text = fedscope("data", "show", "imagenet200").out
    assert "ILSVRC/imagenet-1k" in text
    assert "LOC_val_solution.csv" in text
    assert "train 100,000, test 10,000" in text
    assert fedscope("data", "show", "office_caltech", "--json").json["domains"][0] == "amazon"
    assert fedscope("data", "show", "nothing").code == 2


def test_check_is_0_for_what_is_whole(fedscope: Command) -> None:
    done = fedscope("data", "check", "digits", "--json")
    assert done.code == 0
    report = done.json
    assert report["ok"]
    assert [(line["split"], line["found"], line["verdict"]) for line in report["lines"]] == [
        ("train", 1437, "ok"), ("test", 360, "ok"),
    ]  # fmt: skip


def test_check_is_2_for_what_is_not(fedscope: Command, tmp_path: Path) -> None:
    make("office_caltech", tmp_path / "data")
    done = fedscope("data", "check", "data")
    assert done.code == 2
    assert "train has 80 images, not 248" in done.err
    assert "webcam" in done.out
    missing = fedscope("data", "check", "cifar100")
    assert (missing.code, missing.out) == (2, "")
    assert "uoft-cs/cifar100" in missing.err
    assert "no data set in ." in fedscope("data", "check", ".").err
    make("digits5", tmp_path / "data", per_class=5)
    (tmp_path / "data" / "digits5" / "mnist").rename(tmp_path / "mnist")
    assert "training fetches ylecun/mnist" in fedscope("data", "check", "digits5", "--data-dir", "data").err
