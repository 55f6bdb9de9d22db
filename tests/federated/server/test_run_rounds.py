import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import content_hash, load_checkpoint
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunFolder, RunRegistry
from fedscope.cli.main import call
from fedscope.errors import UserError
from fedscope.federated.client.local_loop import LocalTrainer
from fedscope.federated.methods import parse
from fedscope.federated.parallel.evaluation import EvaluationScore, score_sums
from fedscope.federated.parallel.memory import Memory
from fedscope.federated.record.flat import FlatModel
from fedscope.federated.record.tasks import LocalSettings, Task
from fedscope.federated.server.run_rounds import train
from fedscope.federated.setup.federation import open_run, prepare
from fedscope.models.catalogue import build
from fedscope.streams import torch_stream
from tests.federated.runs import interrupted, resumed, trained
from tests.processes import started


def stripped(metrics: list[Round]) -> list[dict[str, object]]:
    """Return what does not depend on the machine's mood."""
    moods = ("seconds", "seconds_in", "peak_memory_bytes", "workers", "clients")
    return [{k: v for k, v in m.to_json().items() if k not in moods} for m in metrics]


def test_one_client_is_centralised_sgd(tmp_path: Path) -> None:
    settings = Settings(clients=1, rounds=1, epochs=2, partition="iid", threads=1)
    run = trained(tmp_path, settings)
    federation = prepare(settings, {})
    flat = FlatModel(federation.model)
    local = LocalSettings(2, settings.batch_size, weight_decay=settings.weight_decay)
    trainer = LocalTrainer(flat, federation.dataset.train, federation.pipeline, parse("fedavg"), {}, local)
    task = Task(
        federation.rows[0], torch_stream(0, "batch order", 1, 0), torch_stream(0, "augmentation", 1, 0)
    )
    trainer.train(flat.values[0].clone(), flat.counters.clone(), [task], settings.lr)
    assert load_checkpoint(run.final).sha256 == content_hash(federation.model.state_dict())


def test_the_global_model_is_the_mean_of_the_uploads(tmp_path: Path) -> None:
    run = trained(tmp_path, Settings(clients=3, rounds=1, epochs=1))
    uploads = [load_checkpoint(path) for path in run.clients()]
    total = sum(u.info.samples or 0 for u in uploads)
    assert total == 1437
    for name, tensor in load_checkpoint(run.final).state.items():
        if tensor.is_floating_point():
            mean = sum(
                (u.state[name].double() * ((u.info.samples or 0) / total) for u in uploads), torch.zeros(())
            )
            torch.testing.assert_close(tensor, mean.float(), rtol=1e-6, atol=1e-7)


def test_rate_zero_changes_nothing_but_batchnorm(tmp_path: Path) -> None:
    settings = Settings(clients=3, rounds=2, epochs=1, lr=0)
    run, fresh = trained(tmp_path, settings), prepare(settings, {}).model
    state = load_checkpoint(run.final).state
    assert all(torch.equal(state[name], p) for name, p in fresh.named_parameters())
    assert not torch.equal(state["stem.1.running_mean"], fresh.state_dict()["stem.1.running_mean"])


def test_a_run_is_repeatable_whatever_the_global_seed(tmp_path: Path) -> None:
    settings = Settings(clients=3, rounds=2, epochs=1, participation=0.7)
    torch.manual_seed(1)
    first = trained(tmp_path / "a", settings)
    torch.manual_seed(2)
    second = trained(tmp_path / "b", settings)
    assert load_checkpoint(first.final).sha256 == load_checkpoint(second.final).sha256
    other = trained(tmp_path / "c", settings.model_copy(update={"seed": 1}))
    assert load_checkpoint(first.final).sha256 != load_checkpoint(other.final).sha256


def test_clients_share_the_partition_and_the_sample_across_methods(tmp_path: Path) -> None:
    settings = Settings(clients=6, participation=0.4, rounds=3, epochs=1)
    both = [settings, settings.model_copy(update={"method": "fedavg+man"})]
    drawn = [[m.clients for m in trained(tmp_path, s, name=s.method).metrics()] for s in both]
    assert drawn[0] == drawn[1]
    plain, man = (prepare(s, {}) for s in both)
    assert all(torch.equal(a, b) for a, b in zip(plain.rows, man.rows, strict=True))
    assert content_hash(plain.model.state_dict()) == content_hash(man.model.state_dict())


def test_an_interrupted_run_continues_with_the_same_bits(tmp_path: Path) -> None:
    settings = Settings(clients=3, rounds=3, epochs=1, keep_every=2)
    whole = trained(tmp_path, settings, name="whole")
    run = interrupted(tmp_path, settings)
    assert run.last.exists()
    assert not run.final.exists()
    # A crash between the two writes of a round leaves its metrics ahead of its weights.
    run.append_metrics(Round(round=3, accuracy=2.0, loss=0.0))
    metrics = resumed(tmp_path, settings)
    assert load_checkpoint(run.final).sha256 == load_checkpoint(whole.final).sha256
    assert load_checkpoint(run.best).sha256 == load_checkpoint(whole.best).sha256
    assert stripped(metrics) == stripped(whole.metrics())
    assert run.metrics()[2].clients == [0, 1, 2]
    assert not run.last.exists()


def test_a_run_that_stops_after_its_last_round_is_finished(tmp_path: Path) -> None:
    settings = Settings(clients=2, rounds=2, epochs=1)
    run = interrupted(tmp_path, settings, after=2)
    assert run.final.exists()
    assert [row["status"] for row in RunRegistry(tmp_path).rows()] == ["finished"]
    before = run.final.stat().st_mtime_ns
    resumed(tmp_path, settings)
    assert run.final.stat().st_mtime_ns == before
    assert not run.last.exists()


def test_weights_ahead_of_their_metrics_are_not_trained_on(tmp_path: Path) -> None:
    settings = Settings(clients=2, rounds=2, epochs=1)
    run = trained(tmp_path, settings)
    before = load_checkpoint(run.final).sha256
    run.final.rename(run.last)
    run.write_metrics(run.metrics()[:1])
    federation = prepare(settings, {})
    with pytest.raises(UserError, match="metrics"):
        train(federation, open_run(federation, RunRegistry(tmp_path), "run", resume=True), lambda _: None)
    assert load_checkpoint(run.last).sha256 == before


def test_a_killed_run_continues_with_the_same_bits(tmp_path: Path) -> None:
    words = [
        "train", "--clients", "3", "--rounds", "4", "--epochs", "1", "--threads", "1",
        "--registry", str(tmp_path), "--name",
    ]  # fmt: skip
    assert call([*words, "whole"]) == 0
    with started(*words, "cut") as command:
        next(line for line in command.errors if "round 2/4" in line)
    assert not RunFolder(tmp_path / "cut").final.exists()
    assert call([*words, "cut", "--resume"]) == 0
    cut, whole = (load_checkpoint(RunFolder(tmp_path / name).final) for name in ("cut", "whole"))
    assert cut.sha256 == whole.sha256


def test_resuming_with_other_settings_is_refused(run: RunFolder) -> None:
    federation = prepare(Settings(clients=3, rounds=2, epochs=1, lr=0.5), {})
    with pytest.raises(UserError, match=r"lr 0\.05 → 0\.5"):
        open_run(federation, RunRegistry(run.folder.parent), run.name, resume=True)


def test_resuming_a_finished_run_leaves_it(run: RunFolder) -> None:
    federation = prepare(run.manifest().settings, {})
    before = load_checkpoint(run.final).sha256
    again = open_run(federation, RunRegistry(run.folder.parent), run.name, resume=True)
    metrics = train(federation, again, lambda _: pytest.fail("trained again"))
    assert len(metrics) == 2
    assert load_checkpoint(run.final).sha256 == before


def test_metrics_tell_the_truth(run: RunFolder) -> None:
    checkpoint, last = load_checkpoint(run.final), run.metrics()[-1]
    federation = prepare(run.manifest().settings, {})
    model = copy.deepcopy(federation.model)
    model.load_state_dict(checkpoint.state)
    score = EvaluationScore.from_sums(score_sums(model, federation.dataset.test, federation.pipeline), ())
    assert last.accuracy == score.accuracy
    assert last.loss == pytest.approx(score.loss, rel=1e-6)  # kernels lie channels-last in training
    assert checkpoint.info.metrics == {"accuracy": last.accuracy, "loss": last.loss}
    assert load_checkpoint(run.best).info.metrics["accuracy"] == max(m.accuracy or 0.0 for m in run.metrics())


def test_save_clients_and_keep_every(tmp_path: Path) -> None:
    settings = Settings(clients=3, rounds=2, epochs=1, participation=0.4, keep_every=1, save_clients="all")
    run = trained(tmp_path, settings)
    sampled = [client for m in run.metrics() for client in m.clients]
    assert {p.name for p in run.clients()} == {f"{k:04d}.pt" for k in sampled}
    for round, client in enumerate(sampled, 1):
        assert load_checkpoint(run.client(client, round)).info.round == round
    assert load_checkpoint(run.after_round(1)).info.round == 1
    none = trained(tmp_path, settings.model_copy(update={"save_clients": "none"}), name="none")
    assert none.clients() == []


def test_divergence_is_kept_and_told(tmp_path: Path) -> None:
    run = trained(tmp_path, Settings(clients=2, rounds=3, epochs=1, lr=1e30))
    (only,) = run.metrics()
    assert (only.loss, only.train_loss, run.manifest().diverged) == (None, None, 1)
    assert load_checkpoint(run.last).info.metrics["loss"] is None
    assert not run.final.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "fedprx"}, "did you mean 'fedprox'"),
        ({"dataset": "mnist"}, "unknown dataset"),
        ({"model": "vgg"}, "unknown model"),
        ({"model": "convnet_cifar"}, "convnet_cifar takes 32-pixel images, digits has 8"),
        ({"model": "alexnet_bn"}, "takes images of 63 pixels or more, digits has 8"),
        ({"model": "resnet18", "shortcut": "B"}, "resnet18 has no shortcut 'B' to choose"),
        ({"model": "mlp_digits", "head": True}, "mlp_digits has no projection head"),
        ({"clients": 2000, "partition": "iid"}, "cannot share 1437"),
        ({"clients": 5, "participation": 0.1}, "is nobody"),
        ({"augmentation": "man"}, "unknown augmentation"),
    ],
)
def test_bad_settings(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare(Settings(**change), {})


def test_a_network_for_other_images_trains_where_it_can(tmp_path: Path) -> None:
    settings = Settings(
        model="resnet20", shortcut="B", method="stochdepth", clients=2, rounds=1, epochs=1, train_samples=100
    )
    run = trained(tmp_path, settings)
    info = load_checkpoint(run.final).info
    assert (info.model.name, info.model.shortcut, info.model.keep) == ("resnet20", "B", 0.9)
    rebuilt = build(**info.model.model_dump(), generator=torch.Generator())
    rebuilt.load_state_dict(load_checkpoint(run.final).state)


def test_feddyn_keeps_its_books(tmp_path: Path) -> None:
    """θ_{t+1} − mean w_k = mean_k h_k over all clients, and h_k = Σ (w_k − θ_t) over its rounds."""
    settings = Settings(
        method="feddyn",
        clients=5,
        participation=0.6,
        rounds=4,
        epochs=1,
        save_clients="all",
        keep_every=1,
        clip=1.0,
    )
    run = trained(tmp_path, settings)
    flat = FlatModel(prepare(settings, {}).model)

    def vector(path: Path) -> Tensor:
        flat.load(load_checkpoint(path).state)
        return flat.values[0, : flat.size].double()

    theta = flat.values[0, : flat.size].double()
    h = {client: torch.zeros_like(theta) for client in range(5)}
    for record in run.metrics():
        round, sampled = record.round, record.clients
        uploads = {client: vector(run.client(client, round)) for client in sampled}
        for client, w in uploads.items():
            h[client] += w - theta
        theta = vector(run.after_round(round))
        mean = torch.stack(list(uploads.values())).mean(0)
        torch.testing.assert_close(theta - mean, torch.stack(list(h.values())).mean(0), rtol=0, atol=1e-6)
    memory = Memory.after(run.folder / "state", flat.size, settings.rounds)
    for client, expected in h.items():
        recalled = memory.recall(client)
        assert (recalled is None) == bool((expected == 0).all())
        if recalled is not None:
            torch.testing.assert_close(recalled.double(), expected, rtol=0, atol=1e-6)
    server = memory.server(settings.rounds)["dyn.h"]
    torch.testing.assert_close(server, torch.stack(list(h.values())).mean(0), rtol=0, atol=1e-6)


def test_what_is_kept_in_memory_does_not_grow_with_the_clients(tmp_path: Path) -> None:
    settings = Settings(
        dataset="synthetic", clients=10_000, participation=0.001, partition="iid", rounds=3, epochs=1
    )
    federation = prepare(settings, {})
    metrics = train(
        federation, open_run(federation, RunRegistry(tmp_path), "run", resume=False), lambda _: None
    )
    assert not any(record.clients for record in metrics)
    assert sum(rows.nbytes for rows in federation.rows) == 8 * 100_000  # indices, not copies


def test_a_run_is_trained_by_one_process_at_a_time(run: RunFolder) -> None:
    with run.locked(), pytest.raises(UserError, match=r"another process .*'tiny'"), run.locked():
        pass
    with run.locked():
        run.write_manifest(run.manifest())  # another file of that name
        with pytest.raises(UserError, match="another process"), run.locked():
            pass
