"""The ``influence`` entry, from four samples by hand."""

import json

from fedscope.records.influence_entry import Holders, Influence, influence_entry


def test_every_sample_keeps_its_row_class_and_clients() -> None:
    entry = influence_entry(
        [1.0, 6.0, -1.0, 4.0],
        rows=[40, 10, 30, 20],
        listed=2,
        labels=[1, 0, 1, 1],
        holders=Holders([[2], [0], [], [0, 2]], rows="stored", rows_sha256="ab"),
        names=("cat", "dog"),
        split="train",
    )
    found = Influence.read(json.loads(json.dumps(entry)))
    listed = [(one.row, one.label, one.clients, one.part, one.share) for one in found.largest]
    assert listed == [(10, 0, (0,), 6.0, 0.6), (20, 1, (0, 2), 4.0, 0.4)]
    assert (found.top.samples, found.top.share) == (1, 0.6)
    assert (found.negative.samples, found.negative.share) == (1, -0.1)
    classes = [(one.number, one.name, one.samples, one.share) for one in found.by_class or ()]
    assert classes == [(0, "cat", 1, 0.6), (1, "dog", 3, 0.4)]
    clients = [(one.number, one.name, one.samples, one.share) for one in found.by_client or ()]
    assert clients == [(0, None, 2, 1.0), (2, None, 2, 0.5)]  # the row of both counts for each
    assert (found.rows, found.rows_sha256, found.split) == ("stored", "ab", "train")


def test_what_is_not_known_is_null() -> None:
    entry = influence_entry([0.0, 0.0], rows=[0, 1], listed=9, holders=Holders(reason="an added run"))
    assert (entry["by_class"], entry["by_client"], entry["clients_reason"]) == (None, None, "an added run")
    assert entry["top"] == {"samples": 1, "share": None}
    assert entry["largest"] == [
        {"row": row, "label": None, "clients": [], "part": 0.0, "share": None} for row in (0, 1)
    ]
