"""A Lightning training whose epochs are registered."""

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.checkpoints.verification.verify import verify_run
from tests.adoption.recipes import recipe

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers, devices and loggers


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    with warnings.catch_warnings():  # of what it imports
        warnings.simplefilter("ignore")
        pytest.importorskip("lightning.pytorch", reason="needs lightning: pip install 'fedscope[lightning]'")


@cache
def kind() -> Any:
    """The class of a small classifier below a prefix, with a buffer of its own beside it."""
    from lightning.pytorch import LightningModule

    class Module(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
            self.register_buffer("seen", torch.zeros(1))

        def training_step(self, batch: list[Tensor], _place: int) -> Tensor:
            loss = cross_entropy(self.net(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: list[Tensor], _place: int) -> None:
            self.log("val_acc", (self.net(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Module


def registering(name: str, **given: Any) -> Any:
    """The page's callback, which imports Lightning."""
    return recipe("coming_from/lightning.md", "registered.py").RegisterEpochs(name, dataset="mine", **given)


def fitted(folder: Path, epochs: int, *, validated: bool = True, **given: Any) -> tuple[Any, Any]:
    """Train for some epochs with the callback."""
    inputs = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
    data = DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), batch_size=16)
    from lightning.pytorch import Trainer

    module = kind()()
    register = registering("fit", model=module.net, registry=folder, **given)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", callbacks=[register], enable_model_summary=False, **quiet
    )
    trainer.fit(module, data, data if validated else None)
    return module, register


def test_every_epoch_is_a_round_with_its_scores(tmp_path: Path) -> None:
    module, register = fitted(tmp_path, 3)
    run = register.recorder.run
    metrics = run.metrics()
    assert [m.round for m in metrics] == [1, 2, 3]
    assert all(m.accuracy is not None and m.train_loss is not None and m.loss is None for m in metrics)
    final = load_checkpoint(run.final)
    assert final.info.round == 3
    assert all(torch.equal(final.state[name], tensor) for name, tensor in module.net.state_dict().items())
    assert final.state.keys() == module.net.state_dict().keys()
    assert not torch.equal(load_checkpoint(run.after_round(1)).state["0.weight"], final.state["0.weight"])
    assert not list(verify_run(run))


def test_an_epoch_without_scores_is_a_round_and_the_run_is_finished(tmp_path: Path) -> None:
    _, register = fitted(tmp_path, 5, validated=False)
    metrics = register.recorder.run.metrics()
    assert [m.round for m in metrics] == [1, 2, 3, 4, 5]
    assert all(m.accuracy is None and m.train_loss is not None for m in metrics)
    (row,) = RunRegistry(tmp_path).rows()
    assert (row["status"], row["done"]) == ("finished", 5)


def test_only_the_first_process_registers(tmp_path: Path) -> None:
    register = registering("fit", model=nn.Linear(3, 2), registry=tmp_path)

    class Other:
        is_global_zero = False
        callback_metrics: dict[str, Tensor] = {}  # noqa: RUF012

    register.on_train_epoch_end(Other(), nn.Linear(3, 2))
    register.on_train_end(Other(), nn.Linear(3, 2))
    assert register.recorder.run is None
