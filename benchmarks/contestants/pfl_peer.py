"""pfl (pfl-research): FederatedAveraging on the SimulatedBackend, clients' tensors in memory.

Run alone it is one process; under torchrun the clients of a round and the central evaluation are shared among
the processes, which is pfl's documented way to use several cores. A client's batches are cut once and then
cached, in a fixed order; users are sampled by turns (MinimizeReuseUserSampler, the recommended sampler).
"""

import functools

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import distributed
from pfl.metrics import Metrics, StringMetricName, Weighted
from pfl.model.pytorch import PyTorchModel
from shared import Rounds, Work, arguments, network, read_work
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class Objective(nn.Module):
    """The network with the loss and the metrics that pfl asks for; counts what it trains."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner
        self.steps = self.samples = 0

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy; pfl calls it once per gradient step."""
        self.steps += 1
        self.samples += len(labels)
        return cross_entropy(self.inner(inputs), labels)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Weighted]:
        """Return the accuracy on a batch."""
        correct = int((self.inner(inputs).argmax(1) == labels).sum())
        return {"accuracy": Weighted(correct, len(labels))}


class Watch(TrainingProcessCallback):
    """Notes the end of each round and the accuracy that the evaluation before it found."""

    def __init__(self, objective: Objective, rounds: Rounds):
        self._objective, self._rounds = objective, rounds
        self.accuracy = 0.0

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Take the counts of the round and start anew."""
        name = StringMetricName("Central val | accuracy")
        if name in aggregate_metrics:
            self.accuracy = aggregate_metrics[name].overall_value
        self._rounds.end(self._objective.steps, self._objective.samples)
        self._objective.steps = self._objective.samples = 0
        return False, Metrics()


def users(work: Work) -> FederatedDataset:
    """Return the clients, each a data set that keeps its batches."""
    shards = [
        PyTorchTensorDataset((inputs, labels), user_id=str(client))
        for client, (inputs, labels) in enumerate(zip(work.inputs, work.labels, strict=True))
    ]
    return FederatedDataset(shards.__getitem__, MinimizeReuseUserSampler(range(len(shards))))


def summed(rounds: Rounds) -> Rounds:
    """Add up what the processes trained; the clock is this process's, which waits for the others."""
    counts = torch.tensor([rounds.steps, rounds.samples])
    if distributed.world_size > 1:
        torch.distributed.all_reduce(counts)
    return Rounds(rounds.ends, *counts.tolist())


def main() -> None:
    """Time the rounds after the first."""
    options = arguments(threads={"type": int, "default": 1})
    torch.set_num_threads(options.threads)
    np.random.seed(0)  # pfl's processes agree on the cohort through it
    work = read_work(options.work)
    settings, objective, rounds = work.settings, Objective(network(work)), Rounds()
    watch = Watch(objective, rounds)
    names = ("momentum", "nesterov", "weight_decay")
    local = functools.partial(torch.optim.SGD, **{name: settings[name] for name in names}, foreach=True)
    model = PyTorchModel(objective, local, torch.optim.SGD(objective.parameters(), lr=1.0))
    evaluation = NNEvalHyperParams(local_batch_size=1000)
    clients = users(work)
    test = PyTorchTensorDataset((work.test_inputs, work.test_labels))
    FederatedAveraging().run(
        # The clients' own evaluation, before and after training, is left to the warm-up round.
        NNAlgorithmParams(settings["rounds"], settings["rounds"], work.cohort, 0),
        SimulatedBackend(clients, clients),
        model,
        NNTrainHyperParams(
            local_batch_size=settings["batch_size"],
            local_num_epochs=settings["epochs"],
            local_learning_rate=settings["lr"],
        ),
        evaluation,
        [CentralEvaluationCallback(test, evaluation), watch],
    )
    rounds = summed(rounds)
    if distributed.global_rank == 0:
        rounds.report(accuracy=watch.accuracy)
    if distributed.world_size > 1:  # before Python ends: the group's threads may abort a process that ends
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
