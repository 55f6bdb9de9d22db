"""No two checkpoints have one name."""

from fedscope.figures.labels import label

HERE = {"path": "runs/a/final.pt", "run": "a", "round": 12, "client": None, "average": "cld"}


def test_each_kind_of_checkpoint_has_its_own_label() -> None:
    labels = [
        label(HERE | change)
        for change in ({}, {"client": 3}, {"average": "all"}, {"average": "sel"}, {"round": 13}, {"run": "b"})
    ]
    assert labels[:3] == ["a@12", "a@client3 (round 12)", "a@all (round 12)"]
    assert len(set(labels)) == len(labels)
    assert label({"path": "x/mine.pt", "run": None}) == "mine.pt"
    assert label({"path": "f.pt", "run": "a", "round": 2, "client": None}) == "a@2"  # an older record
