"""The numbers and settings that a logger gets."""

from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.registry.run_folder import RunFolder
from fedscope.loggers.logger import numbers, settings_of
from fedscope.loggers.trackers import key
from tests.records.test_round_quantities import DIAGNOSTICS


def test_every_number_has_a_name_and_clients_are_counted() -> None:
    metrics = Round.read({
        "round": 3, "accuracy": 0.5, "loss": None, "clients": [4, 7], "accuracies": {"cld": 0.5, "all": 0.25},
        "peak_memory_bytes": [10, 20], "seconds": 1.5, "note": "of one's own", "own": {"deep": 2},
    })  # fmt: skip
    found = numbers(metrics)
    assert found["accuracies/all"] == 0.25
    assert (found["peak_memory_bytes/0"], found["peak_memory_bytes/1"]) == (10, 20)
    assert (found["clients"], found["own/deep"], found["seconds"]) == (2, 2, 1.5)
    assert not {"round", "loss", "note", "rows"} & set(found)


def test_settings_are_flat_and_have_the_methods_options(run: RunFolder) -> None:
    manifest = run.manifest()
    options = {"man.zeta": 0.25}
    changed = manifest.model_copy(
        update={"settings": manifest.settings.model_copy(update={"options": options})}
    )
    settings = settings_of(changed)
    assert (settings["man.zeta"], settings["clients"], settings["method"]) == (0.25, 3, "fedavg")
    assert "options" not in settings


def test_a_run_keeps_its_key_when_it_is_extended(run: RunFolder) -> None:
    manifest = run.manifest()
    longer = manifest.model_copy(update={"settings": manifest.settings.model_copy(update={"rounds": 9})})
    assert key(longer) == key(manifest)
    assert key(manifest.model_copy(update={"created": "2026-01-01T00:00:00+00:00"})) != key(manifest)
    assert len(key(manifest)) == 16


def test_lists_of_the_diagnostics_have_three_numbers() -> None:
    found = numbers(Round.read({"round": 1, "clients": [0, 1], "diagnostics": DIAGNOSTICS}))
    assert found["diagnostics/updates/drift"] == 3
    assert found["diagnostics/updates/pairs/least"] == 0.25
    lists = {name: value for name, value in found.items() if name.startswith("diagnostics/local/before")}
    assert lists == {f"diagnostics/local/before/{name}": 2.0 for name in ("mean", "least", "most")}
    assert found["diagnostics/class_accuracy/mean"] == 0.375
    assert found["diagnostics/local/noted/man.activations/relu"] == 0.5
    assert found["diagnostics/curvature/lambda_max"] == 5
    assert not [name for name in found if name.endswith(("/0", "/1"))]
