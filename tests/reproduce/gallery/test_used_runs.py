"""The runs of a paper's page: what each took, on a core or on a GPU."""

import pytest

from fedscope.records.artefact import UsedRun
from fedscope.reproduce.gallery.render import hours


@pytest.mark.parametrize(
    ("device", "said"), [("cpu", "0.5"), ("cuda", "0.50 of a GPU"), ("cuda:1", "0.50 of a GPU")]
)
def test_the_hours_say_of_what_they_are(device: str, said: str) -> None:
    content = {
        "row": "FedAvg", "column": "", "run": "a", "round": 3, "checkpoints": {}, "seed": 1,
        "accuracy": 0.5, "core_seconds": 1800.0,
        "settings": {"device": device, "method": "fedavg"},
    }  # fmt: skip
    assert hours(UsedRun.model_validate(content)) == said
