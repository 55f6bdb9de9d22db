"""MLflow's file store, read by MLflow."""

from pathlib import Path
from typing import Any

import pytest

from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.errors import UserError
from fedscope.loggers.logger import logged, numbers
from fedscope.loggers.trackers import to_mlflow


@pytest.fixture(autouse=True)
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """MLflow on a folder of the test."""
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow-skinny: pip install 'fedscope[mlflow]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    return mlflow.MlflowClient()


def found(client: Any, experiment: str = "fedscope") -> Any:
    """The one run of the experiment."""
    (one,) = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return one


def steps(client: Any, metric: str = "accuracy") -> list[int]:
    history = client.get_metric_history(found(client).info.run_id, metric)
    return [entry.step for entry in sorted(history, key=lambda entry: entry.step)]


def test_a_run_has_its_settings_and_every_number(own: RunFolder, client: Any) -> None:
    with logged(own, {"mlflow": to_mlflow}, pytest.fail):
        pass
    one = found(client)
    assert (one.info.run_name, one.info.status) == ("tiny", "FINISHED")
    assert (one.data.params["dataset"], one.data.params["clients"]) == ("digits", "3")
    assert {**numbers(own.metrics()[-1]), "round": 2} == pytest.approx(one.data.metrics)


def test_a_continued_run_is_the_same_and_has_every_round_once(own: RunFolder, client: Any) -> None:
    for _ in range(2):
        with logged(own, {"mlflow": to_mlflow}, pytest.fail):
            pass
    assert steps(client) == [1, 2]
    with logged(own, {"mlflow": to_mlflow}, pytest.fail) as log:
        assert found(client).info.status == "RUNNING"
        log(own.metrics()[-1].edited(round=3))
    assert steps(client) == [1, 2, 3]
    assert found(client).info.status == "FINISHED"


def test_the_experiment_is_the_environment_s(
    own: RunFolder, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "thesis")
    with logged(own, {"mlflow": to_mlflow}, pytest.fail):
        pass
    assert found(client, "thesis").info.run_name == "tiny"


def test_a_store_that_is_not_to_be_had_is_refused(own: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://at/all")
    with pytest.raises(UserError, match="--log mlflow: "), logged(own, {"mlflow": to_mlflow}, pytest.fail):
        pytest.fail("it was opened")
