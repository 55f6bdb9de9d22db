"""pfl-research: the central iterations of an algorithm as rounds of a run, by a callback.

register = RegisterIterations("mine", model=network, dataset="mine", clients="last")
backend = SimulatedBackend(..., postprocessors=[register, ...])
algorithm.run(..., backend, model, ..., callbacks=[CentralEvaluationCallback(...), register])
"""

from collections.abc import Mapping
from typing import Any, Unpack

from torch import Tensor, nn

from fedscope.adoption.recorder import Federated, Recorder, scores
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.errors import UserError
from fedscope.extras import needed

with needed("pfl", "fedscope.adoption.pfl"):
    from pfl.callback.base import TrainingProcessCallback
    from pfl.internal.ops.selector import get_default_framework_module as framework
    from pfl.metrics import Metrics, get_overall_value
    from pfl.postprocessor.base import Postprocessor

LOGGED = {"accuracy": "Central val | accuracy", "loss": "Central val | loss", "train_loss": ""}


class RegisterIterations(TrainingProcessCallback, Postprocessor):  # type: ignore[misc]  # pfl has no types here
    """Registers the model after every central iteration, and as a postprocessor the clients' models.

    Put it after the callbacks whose metrics it takes, and before postprocessors that change what clients send
    (weighting, noise). Where several processes simulate, the first one registers, and clients cannot be
    registered, since each process sees its own.

    A user whose id is a whole number from 0 is the client of that number; others are numbered in the order of
    appearance, and their models are not paired with their own data. An upload is the global model plus the
    client's update of the trained parameters. pfl keeps no other state of a client, so buffers are the global
    model's.

    Name, data and ``about`` are :class:`fedscope.adoption.recorder.Recorder`'s.

    Args:
        model: as there; in the module that pfl trains it may be a part, but only once.
        logged: score (accuracy, loss, train_loss) → the name of pfl's metric; by default :data:`LOGGED`.
    """

    def __init__(
        self,
        name: str,
        *,
        model: str | nn.Module,
        dataset: str,
        logged: Mapping[str, str] = LOGGED,
        **about: Unpack[Federated],
    ) -> None:
        self._recorder = Recorder(name, model=model, dataset=dataset, source="pfl", **about)
        self._logged = dict(logged)
        self._model: Any = None

    @property
    def run(self) -> RunFolder | None:
        """The run, from the first round on."""
        return self._recorder.run

    def on_train_begin(self, *, model: Any) -> Metrics:
        """Remember the model, from whose weights the clients' updates count."""
        if self._recorder.clients != "none" and _processes() > 1:
            raise UserError("clients can be registered where one process simulates all; leave clients out")
        self._model = model
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Register the next round, whatever the iteration's number in a training that pfl restored."""
        if _rank() == 0:
            values = {str(name): get_overall_value(value) for name, value in aggregate_metrics}
            self._recorder.round(model.pytorch_model, scores(self._logged, values))
        return False, Metrics()

    def on_train_end(self, *, model: Any) -> None:
        """Finish the run."""
        if _rank() == 0:
            self._recorder.finish()

    def postprocess_one_user(self, *, stats: Any, user_context: Any) -> tuple[Any, Metrics]:
        """Register a client's upload; its update goes on as it is."""
        name = user_context.user_id
        state: dict[str, Tensor] = dict(self._model.pytorch_model.state_dict())
        with_update = {
            key: tensor + stats[key].to(tensor) if key in stats else tensor for key, tensor in state.items()
        }
        self._recorder.upload_by(
            self._recorder.newest + 1, name, name, with_update,
            told="user", order="users", samples=user_context.num_datapoints,
        )  # fmt: skip
        return stats, Metrics()


def _rank() -> int:
    return int(framework().distributed.global_rank)


def _processes() -> int:
    return int(framework().distributed.world_size)
