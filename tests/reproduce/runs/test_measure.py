"""What a measure is of, and what it is called."""

from fedscope.checkpoints.registry.registry import Run
from fedscope.reproduce.recipes.measures import Measure
from fedscope.reproduce.runs.measure import content, uploads


def test_uploads_are_of_measures_that_compare_clients(run: Run) -> None:
    assert uploads(run.final, Measure("hessian")) == {}
    found = uploads(run.final, Measure("hessian", clients=True))
    assert found == {path.name: content(path) for path in run.clients()}
    assert found


def test_a_measure_is_told_in_a_few_words() -> None:
    assert Measure("hessian").summary() == "hessian on all training samples"
    assert Measure("hessian", samples=1024).summary() == "hessian on 1,024 training samples"
    assert "up to 512" in Measure("hessian", samples=512, clients=True).summary()
    assert "41 × 41" in Measure("landscape").summary()
    assert Measure("hessian").top_k == 1
