"""What rounds record: found again from the files of a run, and by plain autograd on one client."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.round_diagnostics import Diagnostics
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder
from fedscope.federated.parallel.memory import Memory
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.setup.federation import Federation, prepare
from tests.federated.runs import interrupted, resumed, trained

BASE = Settings(
    clients=5, participation=0.6, rounds=3, epochs=1, threads=1, train_samples=300, test_samples=100,
    save_clients="all", keep_every=1, model="resnet8", method="fedavg",
)  # fmt: skip
METHODS = ("fedavg", "scaffold", "fedbn", "fedadam", "feddc")


def changed(**fields: Any) -> Settings:
    return BASE.model_copy(update=fields)


def told(record: Round) -> Diagnostics:
    assert record.diagnostics
    return record.diagnostics


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()))


class Files:
    """The models that a run left, as vectors of the parameters that its clients share."""

    def __init__(self, run: RunFolder, federation: Federation):
        self.run, self.federation = run, federation
        module = federation.model
        own = set(
            federation.method.personal(module, {"fedbn.match": "type"}) if federation.method.personal else ()
        )
        self.names = [name for name, _ in module.named_parameters() if name not in own]

    def at(self, path: Path) -> Tensor:
        state = load_checkpoint(path).state
        return torch.cat([state[name].flatten().double() for name in self.names])

    def statistics(self, path: Path) -> Tensor:
        state = load_checkpoint(path).state
        return torch.cat([t.flatten().double() for name, t in state.items() if "running_" in name])


@pytest.mark.parametrize("method", METHODS)
def test_the_files_of_a_run_tell_the_same(method: str, tmp_path: Path) -> None:
    settings = changed(method=method)
    run = trained(tmp_path, settings)
    files = Files(run, prepare(settings, {}))
    last: Tensor | None = None
    for record in run.metrics():
        found, anchor = told(record), files.at(run.anchor(record.round))
        paths = [run.client(client, record.round) for client in record.clients]
        updates = torch.stack([files.at(path) for path in paths]) - anchor
        sizes = [float(load_checkpoint(path).info.samples or 0) for path in paths]
        uniform = files.federation.weights == "uniform"
        p = torch.tensor([1.0] * len(sizes) if uniform else sizes, dtype=torch.float64)
        p /= p.sum()
        mean, norms = p @ updates, updates.norm(dim=1)
        assert found.updates.norms == pytest.approx(norms.tolist(), rel=1e-6)
        assert found.updates.mean_norm == pytest.approx(float(mean.norm()), rel=1e-6)
        assert found.updates.drift == pytest.approx(float(p @ (updates - mean).square().sum(1)), rel=1e-6)
        diversity = float(norms.square().sum() / updates.sum(0).square().sum())
        assert found.updates.diversity == pytest.approx(diversity, rel=1e-6)
        pairs = [cosine(updates[i], updates[j]) for i in range(len(updates)) for j in range(i)]
        to_mean = [cosine(update, mean) for update in updates]
        for spread, values in ((found.updates.pairs, pairs), (found.updates.to_mean, to_mean)):
            assert spread
            assert spread.mean == pytest.approx(sum(values) / len(values), rel=1e-6)
            assert (spread.least, spread.most) == pytest.approx((min(values), max(values)), rel=1e-6)
        statistics = torch.stack([files.statistics(path) for path in paths])
        r = p @ statistics
        apart = float(p @ (statistics - r).square().sum(1) / r.square().sum())
        assert found.updates.batchnorm == pytest.approx(apart, rel=1e-6)
        after = files.at(run.after_round(record.round))
        step = after - anchor
        assert found.server.step == pytest.approx(float(step.norm()), rel=1e-6)
        assert found.server.distance == pytest.approx(float((after - files.at(run.initial)).norm()), rel=1e-6)
        expected = None if last is None else pytest.approx(cosine(step, last), rel=1e-5, abs=1e-7)
        assert found.server.cosine == expected
        last = step


def test_vectors_that_a_method_remembers(tmp_path: Path) -> None:
    settings = changed(method="feddc", model="mlp_digits", participation=1.0)
    run = trained(tmp_path, settings)
    memory = Memory.after(run.folder / "state", 2 * 2410, 3)
    server, rows = memory.server(3), [memory.recall(client) for client in range(5)]
    found = told(run.metrics()[-1]).server
    assert found.state == pytest.approx({name: float(v.norm()) for name, v in server.items()}, rel=1e-6)
    halves = torch.stack([row for row in rows if row is not None]).double().split(2410, 1)
    means = [float(half.norm(dim=1).mean()) for half in halves]
    assert found.memory == pytest.approx(dict(zip(("dc.h", "dc.g_k"), means, strict=True)), rel=1e-6)


class Plain:
    """One client that takes its whole data as one mini-batch, in plain autograd."""

    def __init__(self, federation: Federation):
        self.model: nn.Module = federation.model
        split, rows = federation.dataset.train, federation.rows[0]
        self.images, self.labels = federation.pipeline.test(split.images, rows), split.labels[rows]

    def loss(self) -> tuple[float, list[Tensor]]:
        """Return loss and gradients where the model is."""
        loss = cross_entropy(self.model(self.images), self.labels)
        return loss.item(), [g.double() for g in torch.autograd.grad(loss, list(self.model.parameters()))]

    @torch.no_grad()
    def move(self, along: list[Tensor], length: float) -> None:
        for parameter, direction in zip(self.model.parameters(), along, strict=True):
            parameter.add_(direction.float(), alpha=length)


def norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(t.square().sum()) for t in tensors))


ALONE = Settings(
    clients=1, participation=1.0, rounds=1, partition="iid", model="mlp_digits", batch_size=300, threads=1,
    train_samples=300, test_samples=100, weight_decay=0, lr=0.5, epochs=4,
)  # fmt: skip


def test_losses_and_clipped_steps_are_those_of_plain_gradient_descent(tmp_path: Path) -> None:
    client, losses, norms, clip = Plain(prepare(ALONE, {})), [], [], 0.51
    for _ in range(4):
        loss, gradient = client.loss()
        losses.append(loss)
        norms.append(norm(gradient))
        client.move(gradient, -0.5 * min(1.0, clip / norms[-1]))
    assert sum(length > clip for length in norms) == 3  # not as many as are kept
    found = told(trained(tmp_path, ALONE.model_copy(update={"clip": clip})).metrics()[0]).local
    assert found.before == pytest.approx([losses[0]], rel=1e-6)
    assert found.first_epoch == pytest.approx([losses[0]], rel=1e-6)
    assert found.last_epoch == pytest.approx([losses[-1]], rel=1e-5)
    assert found.clipped == sum(length > clip for length in norms) / 4


def test_an_ascent_step_is_that_of_plain_gradients(tmp_path: Path) -> None:
    settings = ALONE.model_copy(update={"method": "fedsam", "epochs": 1})
    client = Plain(prepare(settings, {}))
    before, first = client.loss()
    client.move(first, 0.5 / norm(first))
    after, second = client.loss()
    found = told(trained(tmp_path, settings, {"sam.rho": "0.5"}).metrics()[0]).local
    assert found.ascent
    assert found.ascent.rise == pytest.approx(after - before, rel=1e-4)
    dot = sum(float((a * b).sum()) for a, b in zip(first, second, strict=True))
    assert found.ascent.cosine == pytest.approx(dot / (norm(first) * norm(second)), rel=1e-5)
    assert found.clipped is None


def test_an_ascent_of_another_loss_is_no_ascent_of_the_task_s(tmp_path: Path) -> None:
    """FedSOL climbs the distance from the received model: one gradient of the task loss is no pair."""
    settings = ALONE.model_copy(update={"method": "fedsol", "epochs": 2})
    assert told(trained(tmp_path, settings).metrics()[0]).local.ascent is None


# FedSOL's ascent has a pass of its own, in which no term is evaluated
@pytest.mark.parametrize(("method", "stack"), [("fedavg+man", 1), ("fedavg+man", 2), ("fedsol+man", 1)])
def test_activations_are_noted_by_layer(method: str, stack: int, tmp_path: Path) -> None:
    settings = ALONE.model_copy(
        update={"method": method, "epochs": 3, "lr": 0.0, "clients": 2, "stack": stack}
    )
    federation = prepare(settings, {})
    run = trained(tmp_path, settings, {"man.include_logits": "true"})
    split, squares = federation.dataset.train, []
    relu = next(module for module in federation.model.modules() if isinstance(module, nn.ReLU))
    hidden: list[Tensor] = []
    relu.register_forward_hook(lambda _module, _inputs, output: hidden.append(output))
    for rows in federation.rows:
        logits = federation.model(federation.pipeline.test(split.images, rows))
        squares.append((hidden[-1].square().mean().item(), logits.square().mean().item()))
    means = [sum(values) / 2 for values in zip(*squares, strict=True)]
    noted = told(run.metrics()[0]).local.noted
    assert list(noted) == ["man.activations"]
    assert list(noted["man.activations"]) == ["relu", "logits"]
    assert list(noted["man.activations"].values()) == pytest.approx(means, rel=1e-5)


def test_layers_that_some_passes_leave_out_are_not_told_apart(tmp_path: Path) -> None:
    settings = changed(method="stochdepth+man", model="resnet20", rounds=1, train_samples=60, batch_size=4)
    noted = told(trained(tmp_path, settings, {"sd.keep": "0.5"}).metrics()[0]).local.noted
    assert set(noted["man.activations"].values()) == {None}


def test_accuracy_by_class(tmp_path: Path) -> None:
    run, federation = trained(tmp_path, BASE), prepare(BASE, {})
    model = federation.model
    model.load_state_dict(load_checkpoint(run.final).state)
    model.eval()
    test = federation.dataset.test
    right = model(federation.pipeline.test(test.images, torch.arange(len(test)))).argmax(1) == test.labels
    expected = [float(right[test.labels == label].double().mean()) for label in range(10)]
    found = told(run.metrics()[-1]).class_accuracy
    assert found == pytest.approx(expected)
    counts = torch.bincount(test.labels, minlength=10).tolist()
    total = sum((share or 0) * count for share, count in zip(found, counts, strict=True))
    assert total / len(test) == pytest.approx(run.metrics()[-1].accuracy)


def test_a_class_without_a_sample_has_no_accuracy(tmp_path: Path) -> None:
    run = trained(tmp_path, changed(test_samples=3, rounds=1, model="mlp_digits"))
    assert told(run.metrics()[0]).class_accuracy.count(None) >= 7


def test_stacked_clients_tell_the_same_but_for_rounding(tmp_path: Path) -> None:
    settings = changed(method="fedsam+man", model="mlp_digits", partition="iid", clip=1.0)
    alone, together = (
        trained(tmp_path, settings.model_copy(update={"stack": stack}), name=f"s{stack}") for stack in (1, 3)
    )
    flat = [
        {**one.updates.to_json(), **one.local.to_json(), **one.server.to_json()}
        for one in (told(run.metrics()[1]) for run in (alone, together))
    ]
    for name, value in flat[0].items():
        assert flat[1][name] == approximately(value), name


def approximately(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: approximately(part) for name, part in value.items()}
    return value if value is None or isinstance(value, str) else pytest.approx(value, rel=2e-3)


def test_clients_that_do_not_move(tmp_path: Path) -> None:
    run = trained(tmp_path, changed(lr=0.0, model="mlp_digits", rounds=2))
    found = told(run.metrics()[1])
    assert found.updates.norms == [0, 0, 0]
    assert (found.updates.drift, found.updates.mean_norm, found.updates.diversity) == (0, 0, None)
    assert found.updates.pairs
    assert found.updates.pairs.mean is None
    assert (found.server.step, found.server.cosine, found.server.distance) == (0, None, 0)


def test_one_client_of_a_round(tmp_path: Path) -> None:
    found = told(trained(tmp_path, changed(participation=0.2, rounds=1, model="mlp_digits")).metrics()[0])
    assert found.updates.pairs is None
    assert (found.updates.drift, found.updates.diversity) == (0, 1)
    assert found.server.step == pytest.approx(found.updates.norms[0], rel=1e-6)


def test_a_run_that_keeps_no_upload_lacks_one_cosine_when_it_is_continued(tmp_path: Path) -> None:
    settings = changed(save_clients="none", model="mlp_digits", keep_every=0)
    whole, _ = trained(tmp_path, settings, name="whole"), interrupted(tmp_path, settings)
    for before, after in zip(whole.metrics(), resumed(tmp_path, settings), strict=True):
        assert told(before).updates == told(after).updates
        assert told(before).local == told(after).local
        first = before.round == 3
        assert told(after).server.cosine == (None if first else told(before).server.cosine)
        assert told(after).server.distance == told(before).server.distance


def test_a_continued_run_knows_the_step_before(tmp_path: Path) -> None:
    settings = changed(method="scaffold", model="mlp_digits", participation=1.0)
    run = trained(tmp_path, settings, name="whole")
    interrupted(tmp_path, settings)
    assert [told(m) for m in resumed(tmp_path, settings)] == [told(m) for m in run.metrics()]


def test_running_statistics_are_no_parameters() -> None:
    model = FlatModel(prepare(BASE, {}).model)
    places = model.positions(["stem.1.running_mean", "stem.1.running_var"])
    assert len(places) == 32
    assert int(places.min()) >= model.size
