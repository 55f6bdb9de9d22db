"""No two checkpoints have one name."""

from fedscope.data.sets.dataset_catalogue import DATASETS
from fedscope.federated.methods import ALIASES, METHODS
from fedscope.figures.text.labels import (
    PRINTED,
    PRINTED_DATA,
    data_name,
    in_subspace,
    label,
    measured_on,
    method_name,
    titles,
)
from fedscope.records.hessian_record import CheckpointEntry
from fedscope.records.saved_records import hessians
from fedscope.reproduce.recipes.spec import names, recipe
from tests.figures.records import curvature

HERE = {"path": "runs/a/final.pt", "run": "a", "round": 12, "client": None, "average": "cld", "sha256": "0"}


def test_each_kind_of_checkpoint_has_its_own_label() -> None:
    labels = [
        label(CheckpointEntry.read(HERE | change))
        for change in ({}, {"client": 3}, {"average": "all"}, {"average": "sel"}, {"round": 13}, {"run": "b"})
    ]
    assert labels[:3] == ["a@12", "a@client3 (round 12)", "a@all (round 12)"]
    assert len(set(labels)) == len(labels)
    sent = CheckpointEntry.read(HERE | {"average": "sent"})
    assert label(sent) == "a@13:anchor (sent)"  # the address of what round 13 began with
    assert label(CheckpointEntry(path="x/mine.pt", sha256="0")) == "mine.pt"
    assert label(CheckpointEntry(path="f.pt", run="a", round=2, sha256="0")) == "a@2"  # an older record


def test_every_method_has_one_printed_name_which_the_papers_tables_use_too() -> None:
    assert set(PRINTED) == {*METHODS, *ALIASES}
    assert method_name("feddyn+man") == "FedDyn+MAN"
    assert method_name("mine+man") == "mine+MAN"
    rows = {row: method for name in names() for row, method in recipe(name).rows.items()}
    printed = {row: method_name(method) for row, method in rows.items() if " " not in method + row}
    assert printed == {row: row for row in printed}
    assert len(printed) > 20


def test_titles_are_methods_where_each_has_its_own() -> None:
    pair = hessians([curvature("a", name) for name in ("fedavg", "fedavg+man")])
    assert titles(pair) == ["FedAvg", "FedAvg+MAN"]
    assert titles([pair[0], pair[0]]) == ["a@4", "a@4"]


def test_captions_say_in_which_subspace_of_adapters_was_measured() -> None:
    whole = curvature("a")
    assert "lora" not in whole["problem"]  # as in every older record
    adapters = [whole | {"problem": whole["problem"] | {"lora": f"r={r},alpha=8"}} for r in (2, 4, 2)]
    assert in_subspace(hessians([whole])) == ""
    assert in_subspace(hessians(adapters)) == "; in the LoRA subspace r=2,alpha=8 or r=4,alpha=8"
    assert measured_on(hessians([whole, adapters[0]])).endswith("; in the LoRA subspace r=2,alpha=8")


def test_every_data_set_has_a_printed_name() -> None:
    assert set(PRINTED_DATA) == set(DATASETS)
    assert data_name("cifar100") == "CIFAR-100"
    assert data_name("mine:train") == "mine:train"
