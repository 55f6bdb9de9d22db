"""A pfl simulation registered by the page's callback: by pfl's hooks, and with pfl where it is."""

import functools
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.verification.verify import verify_run
from tests.adoption.recipes import recipe

RECIPE = ("coming_from/pfl.md", "registered.py")


def stand_in() -> dict[str, ModuleType]:
    """Return what the recipe imports of pfl."""
    parts: dict[str, dict[str, Any]] = {
        "pfl": {}, "pfl.callback": {}, "pfl.postprocessor": {},
        "pfl.callback.base": {"TrainingProcessCallback": type("Callback", (), {})},
        "pfl.metrics": {"Metrics": dict, "get_overall_value": float},
        "pfl.postprocessor.base": {"Postprocessor": type("Postprocessor", (), {})},
    }  # fmt: skip
    modules = {}
    for name, content in parts.items():
        modules[name] = ModuleType(name)
        vars(modules[name]).update(content)
    return modules


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The recipe, run beside the stand-in."""
    for name, module in stand_in().items():
        monkeypatch.setitem(sys.modules, name, module)
    return recipe(*RECIPE)


class Trained(nn.Module):
    """What pfl trains: a network, with the loss and the metrics that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(3, 2)

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.net(inputs), labels)

    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Any]:
        from pfl.metrics import Weighted

        right = int((self.net(inputs).argmax(1) == labels).sum())
        return {"accuracy": Weighted(right, len(labels))}


def test_rounds_and_clients_by_the_hooks_that_pfl_calls(adapter: Any, tmp_path: Path) -> None:
    trained = Trained()
    register = adapter.RegisterIterations(
        "app", model=trained.net, dataset="mine", registry=tmp_path, clients="last"
    )
    model = SimpleNamespace(pytorch_model=trained)
    register.on_train_begin(model=model)
    for iteration in (0, 1):
        for user in ("5", "eve"):
            update = {"net.bias": torch.tensor([1.0, 2.0]), "net.weight": torch.zeros(2, 3)}
            context = SimpleNamespace(user_id=user, num_datapoints=7)
            stats, _ = register.postprocess_one_user(stats=update, user_context=context)
            assert stats is update
        scores = {"Central val | accuracy": 0.5, "Central val | f1": 0.25}
        assert register.after_central_iteration(list(scores.items()), model, central_iteration=iteration) == (
            False,
            {},
        )
    register.on_train_end(model=model)
    run = register.recorder.run
    assert [(m.round, m.accuracy, m.loss) for m in run.metrics()] == [(1, 0.5, None), (2, 0.5, None)]
    uploads = [load_checkpoint(path) for path in run.clients()]
    assert [(u.info.client, u.info.samples, u.info.round) for u in uploads] == [(0, 7, 2), (5, 7, 2)]
    assert torch.equal(uploads[0].state["bias"], trained.net.bias.detach() + torch.tensor([1.0, 2.0]))
    assert torch.equal(uploads[0].state["weight"], trained.net.weight.detach())
    assert not list(verify_run(run))


def test_pfls_own_federated_averaging(tmp_path: Path) -> None:
    """With one user a round, weighted by one, the new global model is that user's upload."""
    pytest.importorskip(
        "pfl", reason="needs pfl, which excludes some of the pinned versions: pip install pfl"
    )
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.central_evaluation import CentralEvaluationCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import MinimizeReuseUserSampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    inputs = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
    labels = (inputs[:, 0] > 0).long()
    users = [
        PyTorchTensorDataset((inputs[k::3], labels[k::3]), user_id=str(k), train_kwargs={}) for k in range(3)
    ]
    clients = FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(range(3)))
    trained = Trained()
    model = PyTorchModel(
        trained, functools.partial(torch.optim.SGD), torch.optim.SGD(trained.parameters(), lr=1.0)
    )
    register = recipe(*RECIPE).RegisterIterations(
        "app", model=trained.net, dataset="mine", registry=tmp_path, clients="all"
    )
    evaluation = NNEvalHyperParams(local_batch_size=None)
    FederatedAveraging().run(
        NNAlgorithmParams(3, 3, 1, 0),
        SimulatedBackend(clients, clients, postprocessors=[register]),
        model,
        NNTrainHyperParams(local_batch_size=4, local_num_epochs=1, local_learning_rate=0.5),
        evaluation,
        [CentralEvaluationCallback(PyTorchTensorDataset((inputs, labels)), evaluation), register],
    )
    run = register.recorder.run
    assert [m.round for m in run.metrics()] == [1, 2, 3]
    assert all(m.accuracy is not None for m in run.metrics())
    sent = set()
    for round in (1, 2, 3):
        path = run.final if round == 3 else run.after_round(round)
        (upload,) = (run.folder / f"round-{round:04d}" / "clients").iterdir()
        sent.add(load_checkpoint(upload).info.client)
        for name, tensor in load_checkpoint(path).state.items():
            assert torch.allclose(tensor, load_checkpoint(upload).state[name], atol=1e-6)
    assert sent == {0, 1, 2}
    assert not list(verify_run(run))
