import json
from pathlib import Path

from .conftest import Command


def test_list_says_what_is_missing(fedscope: Command) -> None:
    found = {one["recipe"]: one for one in fedscope("figures", "list", "--json", "--scale", "smoke").json}
    assert len(found) == 31  # the papers' 25, and six of our own
    one = found["man/table2"]
    assert (one["cells"], one["with_a_run"], len(one["train"])) == (16, 0, 16)
    assert one["seconds"] > 0
    assert one["basis"] == "guess"
    assert found["man/table3"]["cells"] == 0


def test_dry_run_prints_commands_and_does_nothing(fedscope: Command) -> None:
    done = fedscope(
        "figures", "build", "man/table2", "--dry-run", "--only", "fedavg+man", "--seeds", "83217",
        "--registry", "none",
    )  # fmt: skip
    assert done.code == 0
    assert "--preset man/t2/delta0.3 --method fedavg+man --rounds" not in done.out  # 500 is the preset's
    assert "--keep-every 150" in done.out
    assert "\n1 run to train, 0 results to measure" in done.out
    assert not Path("none").exists()
    plan = fedscope("figures", "build", "man/table2", "--dry-run", "--json", "--rounds", "7").json
    assert {job["rounds"] for job in plan["train"]} == {7}


def test_what_needs_no_run_is_built_at_once(fedscope: Command) -> None:
    assert fedscope("figures", "build", "man/table3", "--dry-run").out.endswith(
        "nothing to train or to measure\n"
    )
    done = fedscope("figures", "build", "man/table3", "fedfor/table1", "--out", "g")
    assert done.code == 0, done.err
    assert "g/man/table3-paper.tex" in done.out
    assert json.loads(Path("g/fedfor/table1-paper.json").read_text())["schema"] == "fedscope/artefact/1"
    assert fedscope("figures", "index", "--out", "g").code == 0
    text = Path("g/README.md").read_text()
    assert "[man/table3](man/table3-paper.md)" in text


def test_partial_renders_what_there_is(fedscope: Command) -> None:
    done = fedscope("figures", "build", "man/table2", "--partial", "--out", "g", "--json")
    assert done.code == 0, done.err
    assert done.json["faults"] == {}
    page = Path("g/man/table2-cpu.md").read_text()
    assert "not run [51.49]" in page
    assert "FedDC, each with and without MAN, stop at round 150 of 500" in page


def test_a_rerun_is_compared_with_a_gallery(fedscope: Command) -> None:
    def accuracy(gallery: str, *each: float) -> None:
        """Fill the first cell of a built table with these seeds' values."""
        path = Path(gallery, "man", "table1-cpu.json")
        record = json.loads(path.read_text())
        value = {"value": sum(each) / len(each), "error": 0.5, "seeds": len(each), "each": each}
        record["entries"][0] |= value
        path.write_text(json.dumps(record))

    for gallery, each in (("figures", (40.0, 41.0, 42.0)), ("near", (42.5,)), ("far", (49.0,))):
        assert fedscope("figures", "build", "man/table1", "--partial", "--out", gallery).code == 0
        accuracy(gallery, *each)
    near = fedscope("figures", "check", "man", "--rerun", "near")
    assert near.code == 0, near.err
    assert "man/table1: 1 within, " in near.out
    assert "1.5 ± 1.2" in near.out
    far = fedscope("figures", "check", "man/table1", "--rerun", "far")
    assert far.code == 2
    assert "8.0 ± 1.2" in far.out
    assert "man/table1: numbers differ by more than the spread between seeds" in far.err
    (found,) = fedscope("figures", "check", "man/table1", "--rerun", "near", "--json").json
    assert found["changes"][0]["outcome"] == "within"


def test_mistakes_are_said_in_one_line(fedscope: Command) -> None:
    for words, told in (
        (("build", "man/tabel2"), "did you mean 'man/table2'"),
        (("build", "man/table2", "--only", "moon"), "none of these has moon; they have FedAvg, FedAvg+MAN"),
        (("build", "man/table2", "--device", "tpu"), "unknown device 'tpu'"),
        (("build", "man/table2", "--device", "cuda:99"), "no device 'cuda:99' here"),
        (("build", "man/table2", "--seeds", "1,x"), "takes seeds such as 0,1,2, not '1,x'"),
        (("index", "--out", "nowhere"), "there is no gallery"),
        (("check", "man/table2", "--rerun", "nowhere"), "nowhere has none of man/table2 at scale cpu"),
    ):
        done = fedscope("figures", *words)
        assert done.code == 2
        assert told in done.err
        assert "Traceback" not in done.err
