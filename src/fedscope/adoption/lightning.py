"""Lightning: the epochs of a Trainer as rounds of a run, by a callback.

Trainer(callbacks=[RegisterEpochs("mine", model=network, dataset="mine")])
"""

from collections.abc import Mapping
from typing import Any, Unpack

from torch import nn

from fedscope.adoption.recorder import About, Recorder, scores
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.extras import needed

with needed("lightning", "fedscope.adoption.lightning"):
    from lightning.pytorch import Callback

LOGGED = {"accuracy": "val_acc", "loss": "val_loss", "train_loss": "train_loss"}


class RegisterEpochs(Callback):  # type: ignore[misc]  # of a package that mypy does not follow
    """Registers the model after every ``every`` epochs as a round; the last epochs of a fit as one too.

    Where several processes train, the first one registers. Strategies that shard the model are not
    supported: their modules do not hold the whole state.

    Name, data and ``about`` are :class:`fedscope.adoption.recorder.Recorder`'s.

    Args:
        model: as there; in the LightningModule it may be a part, such as ``self.net``, but only once.
        every: epochs of a round.
        logged: score (accuracy, loss, train_loss) → the name under which the module logs it; by default
            :data:`LOGGED`.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | nn.Module,
        dataset: str,
        every: int = 1,
        logged: Mapping[str, str] = LOGGED,
        **about: Unpack[About],
    ) -> None:
        self._recorder = Recorder(name, model=model, dataset=dataset, source="Lightning", **about)
        self._every, self._logged, self._epochs = every, dict(logged), 0

    @property
    def run(self) -> RunFolder | None:
        """The run, from the first round on."""
        return self._recorder.run

    def on_train_epoch_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Register a round where one ends; the validation of the epoch has been done by then."""
        self._epochs += 1
        if self._epochs % self._every == 0:
            self._add(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        """Register what is left of the last round, and finish the run."""
        if self._epochs % self._every:
            self._add(trainer, pl_module)
        if trainer.is_global_zero:
            self._recorder.finish()

    def _add(self, trainer: Any, module: nn.Module) -> None:
        if trainer.is_global_zero:
            self._recorder.round(module, scores(self._logged, trainer.callback_metrics))
