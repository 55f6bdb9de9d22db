"""Whose model is evaluated, on what, and which clients come: the papers' protocols, on small federations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.schema import Round
from fedscope.checkpoints.file.settings import Settings
from fedscope.checkpoints.registry.run_registry import RunRegistry
from fedscope.data.loading.datasets import Dataset, Split
from fedscope.data.sets import dataset_catalogue
from fedscope.errors import UserError
from fedscope.federated.methods import parse
from fedscope.federated.parallel.evaluation import EvaluationScore, score_sums
from fedscope.federated.server.run_rounds import train
from fedscope.federated.server.run_summary import RunSummary, summary
from fedscope.federated.setup.compatibility import check_compatible
from fedscope.federated.setup.federation import open_run, prepare
from tests.federated.runs import interrupted, resumed, trained

SMALL = Settings(clients=4, rounds=3, epochs=1, train_samples=400, test_samples=100, lr=0.1)


def weights(path: Path) -> dict[str, Tensor]:
    return load_checkpoint(path).state


def test_with_everyone_every_round_all_is_sel_is_cld(tmp_path: Path) -> None:
    run = trained(tmp_path, SMALL.model_copy(update={"eval_model": "all"}))
    for record in run.metrics():
        accuracies = record.accuracies
        assert set(accuracies) == {"cld", "sel", "all"}
        assert accuracies["all"] == accuracies["sel"] == accuracies["cld"] == record.accuracy
    everyone, server = weights(tmp_path / "run" / "all.pt"), weights(run.final)
    for name, values in server.items():
        torch.testing.assert_close(everyone[name], values)


@pytest.mark.parametrize(("method", "weighted"), [("fedavg", True), ("feddyn", False)])
def test_all_is_the_mean_of_every_clients_last_upload(tmp_path: Path, method: str, weighted: bool) -> None:
    settings = SMALL.model_copy(
        update={"method": method, "participation": 0.5, "rounds": 2, "eval_model": "all", "seed": 4}
    )
    federation = prepare(settings, {})
    initial = {name: value.clone() for name, value in federation.model.state_dict().items()}
    run = trained(tmp_path, settings, federation=federation)
    sampled = {client for record in run.metrics() for client in record.clients}
    assert 1 < len(sampled) < 4  # somebody never came
    shares = np.array([len(rows) if weighted else 1 for rows in federation.rows], dtype=float)
    last = [weights(run.client(k)) if k in sampled else initial for k in range(4)]
    found = load_checkpoint(run.average("all"))
    for name, values in found.state.items():
        if values.is_floating_point():
            expected = sum(
                w * state[name].double() for w, state in zip(shares / shares.sum(), last, strict=True)
            )
            torch.testing.assert_close(values.double(), torch.as_tensor(expected), rtol=1e-5, atol=1e-7)
    assert found.info.average == "all"
    assert found.info.metrics["accuracy"] == run.metrics()[-1].accuracy
    server = weights(run.final)
    assert any(not torch.allclose(server[name].float(), v.float()) for name, v in found.state.items())


def test_sel_is_the_mean_before_the_servers_rule(tmp_path: Path) -> None:
    settings = SMALL.model_copy(update={"method": "feddyn", "rounds": 1, "eval_model": "sel"})
    run = trained(tmp_path, settings)
    uploads = [weights(run.client(k)) for k in range(4)]
    mean = weights(run.average("sel"))
    server = weights(run.final)
    name = next(name for name in mean if name.endswith("fc.weight"))
    torch.testing.assert_close(mean[name], torch.stack([u[name] for u in uploads]).mean(0))
    assert not torch.allclose(mean[name], server[name])


def test_the_tracked_mean_survives_an_interruption(tmp_path: Path) -> None:
    settings = SMALL.model_copy(update={"participation": 0.5, "eval_model": "all", "seed": 4})
    whole = trained(tmp_path, settings, name="whole")
    run = interrupted(tmp_path, settings)
    resumed(tmp_path, settings)
    for file in ("all.pt", "final.pt", "best.pt"):
        assert load_checkpoint(whole.folder / file).sha256 == load_checkpoint(run.folder / file).sha256


def test_best_is_the_model_that_counts(tmp_path: Path) -> None:
    settings = SMALL.model_copy(update={"participation": 0.5, "eval_model": "all", "seed": 4})
    run = trained(tmp_path, settings)
    best = load_checkpoint(run.best).info
    assert best.average == "all"
    assert best.metrics["accuracy"] == max(record.accuracy or 0.0 for record in run.metrics())
    assert RunRegistry(tmp_path).resolve("run@all") == run.average("all")


@pytest.fixture
def two_domains(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Digits in two domains, the second with inverted colours; the odd test samples belong to it."""
    plain = dataset_catalogue.load("digits")

    def split(old: Split) -> Split:
        assert isinstance(old.images, Tensor)
        domains = torch.arange(len(old)) % 2
        images = torch.where(domains[:, None, None, None] == 1, 255 - old.images, old.images)
        return Split(images, old.labels, domains)

    dataset = replace(plain, train=split(plain.train), test=split(plain.test), domains=("plain", "inverted"))
    monkeypatch.setattr(dataset_catalogue, "load", lambda *_: dataset)
    return dataset


DOMAINS = Settings(partition="per_domain", clients=2, rounds=2, epochs=2, train_samples=600, lr=0.1)


def test_each_domain_is_evaluated_with_its_clients_batchnorm(tmp_path: Path, two_domains: Dataset) -> None:
    settings = DOMAINS.model_copy(update={"method": "fedbn"})
    federation = prepare(settings, {})
    run = trained(tmp_path, settings, federation=federation)
    server, test = weights(run.final), federation.dataset.test
    expected = {}
    assert test.domains is not None
    for client, domain in enumerate(two_domains.domains):
        own = weights(run.client(client))
        federation.model.load_state_dict(server)
        for name, module in federation.model.named_modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                mine = {key: own[f"{name}.{key}"] for key in module.state_dict()}
                module.load_state_dict(mine)
        rows = (test.domains == client).nonzero()[:, 0]
        found = score_sums(federation.model, replace(test.take(rows), domains=None), federation.pipeline)
        expected[domain] = float(found[0, 1] / found[0, 2])
    assert run.metrics()[-1].domains == pytest.approx(expected, abs=1e-9)
    assert run.metrics()[-1].accuracy == pytest.approx(np.mean(list(expected.values())))


def test_a_shared_model_is_evaluated_on_every_domain(tmp_path: Path, two_domains: Dataset) -> None:
    run = trained(tmp_path, DOMAINS)
    last = run.metrics()[-1]
    assert list(last.domains) == ["plain", "inverted"]
    assert last.accuracy == pytest.approx(np.mean(list(last.domains.values())))


def test_scores_are_unweighted_means_over_the_domains_that_are_there() -> None:
    counted = torch.tensor([[10.0, 8, 10], [2, 1, 2], [0, 0, 0]], dtype=torch.float64)
    score = EvaluationScore.from_sums(counted, ("a", "b", "c"))
    assert score.loss == 1.0
    assert score.accuracy == pytest.approx(0.65)
    assert score.domains == {"a": 0.8, "b": 0.5}


def test_fresh_clients_differ_from_round_to_round(tmp_path: Path) -> None:
    settings = Settings(
        partition="longtail_stateless", phi=0.5, rho=0.1, clients=3, rounds=3, epochs=1, sampling="all"
    )
    federation = prepare(settings, {})
    first, second, again = federation.rows_in(1), federation.rows_in(2), federation.rows_in(2)
    assert all(torch.equal(a, b) for a, b in zip(second, again, strict=True))
    assert not any(set(a.tolist()) == set(b.tolist()) for a, b in zip(first, second, strict=True))
    other = prepare(settings.model_copy(update={"method": "fedprox"}), {})
    assert all(torch.equal(a, b) for a, b in zip(second, other.rows_in(2), strict=True))
    run = trained(tmp_path, settings, federation=federation)
    sizes = [load_checkpoint(run.client(k)).info.samples for k in range(3)]
    assert sizes == [len(rows) for rows in federation.rows_in(3)]


FRESH = Settings(
    partition="longtail_stateless", phi=0.5, rho=0.1, clients=3, rounds=2, epochs=1, sampling="all", stack=1
)


@pytest.mark.parametrize("method", ["feddyn", "moon", "fedcurv", "scaffold"])
def test_a_method_with_memory_refuses_fresh_clients(method: str) -> None:
    with pytest.raises(UserError, match="--memory reset"):
        prepare(FRESH.model_copy(update={"method": method}), {})
    prepare(FRESH.model_copy(update={"method": method, "memory": "reset"}), {})


def test_reset_memory_begins_anew_in_every_round(tmp_path: Path) -> None:
    """With h_k = 0 FedDyn's local objective is FedProx's with μ = α (spec of FedFOR's Table 1)."""
    seen = {}
    for method, given in (("feddyn", {"dyn.alpha": "0.3"}), ("fedprox", {"prox.mu": "0.3"})):
        settings = SMALL.model_copy(
            update={"method": method, "memory": "reset", "weights": "uniform", "rounds": 1,
                    "partition": "iid", "lr_decay": 1.0, "weight_decay": 0.0}
        )  # fmt: skip
        federation = prepare(settings, given)
        run = open_run(federation, RunRegistry(tmp_path), method, resume=False)
        train(federation, run, lambda _: None)
        seen[method] = weights(run.client(0))
    for name, values in seen["feddyn"].items():
        torch.testing.assert_close(values, seen["fedprox"][name], rtol=1e-4, atol=1e-6)
    kept, reset = (
        trained(
            tmp_path, SMALL.model_copy(update={"method": "feddyn", "memory": memory}), name=f"dyn-{memory}"
        )
        for memory in ("keep", "reset")
    )
    same = [
        torch.equal(a, b)
        for a, b in zip(weights(kept.final).values(), weights(reset.final).values(), strict=True)
    ]
    assert not all(same)


def test_a_truncated_run_trains_less_and_says_so(tmp_path: Path) -> None:
    settings = SMALL.model_copy(update={"clients_limit": 2, "steps_limit": 1, "epochs": 3})
    run = trained(tmp_path, settings)
    for record in run.metrics():
        assert record.clients == [0, 1]
        assert record.gradients == 2 * 3
    assert run.manifest().settings.steps_limit == 1


def test_evaluation_can_drop_its_last_batch() -> None:
    settings = SMALL.model_copy(update={"batch_size": 32, "eval_drop_last": True})
    assert len(prepare(settings, {}).dataset.test) == 96
    with pytest.raises(UserError, match="no whole batch"):
        prepare(settings.model_copy(update={"batch_size": 128}), {})


def test_a_missing_validation_split_is_refused() -> None:
    with pytest.raises(UserError, match="--evaluate-on test"):
        prepare(SMALL.model_copy(update={"evaluate_on": "validation"}), {})


@pytest.mark.parametrize(
    "change", [{"method": "fedbn"}, {"partition": "longtail_stateless", "phi": 0.5, "rho": 0.1}]
)
def test_a_mean_of_clients_needs_clients_with_whole_models_that_return(change: dict[str, object]) -> None:
    with pytest.raises(UserError, match="--eval-model all"):
        prepare(SMALL.model_copy(update={"eval_model": "all", **change}), {})


SHIFTING = SMALL.model_copy(update={"shift": "bernoulli", "shift_probability": 0.7, "rounds": 4, "seed": 2})


def test_shifted_labels_are_trained_and_evaluated(tmp_path: Path) -> None:
    federation = prepare(SHIFTING, {})
    maps = federation.label_maps
    assert maps is not None
    run = trained(tmp_path, SHIFTING, federation=federation)
    shifted = [record.shifted for record in run.metrics()]
    before = torch.vstack([torch.arange(10), maps[:-1]])
    assert shifted == (maps != before).any(1).tolist()
    assert any(shifted)
    federation.model.load_state_dict(weights(run.final))
    test = federation.dataset.test
    score = EvaluationScore.from_sums(
        score_sums(federation.model, replace(test, labels=maps[-1][test.labels]), federation.pipeline), ()
    )
    assert run.metrics()[-1].accuracy == score.accuracy
    assert torch.equal(maps, prepare(SHIFTING.model_copy(update={"method": "fedprox"}), {}).label_maps)  # type: ignore[arg-type]


def test_no_shift_is_the_run_without(tmp_path: Path) -> None:
    still = SHIFTING.model_copy(update={"shift_probability": 0.0})
    plain = SHIFTING.model_copy(update={"shift": "none", "shift_probability": 0.05})
    a, b = trained(tmp_path, still, name="still"), trained(tmp_path, plain, name="plain")
    assert load_checkpoint(a.final).sha256 == load_checkpoint(b.final).sha256


def test_a_label_that_all_classes_share_is_learned(tmp_path: Path) -> None:
    """Training and evaluation agree on the labels: with all classes called 3, a model is soon perfect."""
    settings = SMALL.model_copy(update={"shift": "bernoulli", "rounds": 2, "epochs": 3})
    federation = replace(prepare(settings, {}), label_maps=torch.full((2, 10), 3))
    run = trained(tmp_path, settings, federation=federation)
    assert run.metrics()[-1].accuracy == 1.0


def test_the_summary_is_what_the_papers_print() -> None:
    records = [Round(round=n, accuracy=a) for n, a in enumerate((0.1, 0.4, 0.3, 0.5, 0.2), 1)]
    found = summary(Settings(rounds=5, target=0.4), records)
    assert found == RunSummary(
        accuracy=0.2, best_accuracy=0.5, best_half_accuracy=0.4, rounds=5, target=0.4, rounds_to_target=2,
        chosen_on="test",
    )  # fmt: skip
    assert summary(Settings(rounds=5, target=0.6), records).rounds_to_target is None
    assert summary(Settings(rounds=5), records).rounds_to_target is None
    shifting = Settings(rounds=5, shift="bernoulli")
    records[3] = records[3].edited(shifted=True)
    assert summary(shifting, records).shift_accuracy == pytest.approx((0.1 + 0.4 + 0.4 + 0.5 + 0.5) / 5)
    current = shifting.model_copy(update={"shift_metric": "mean_current"})
    assert summary(current, records).shift_accuracy == pytest.approx(0.3)


def test_mixed_clients_have_no_domain_of_their_own(tmp_path: Path, two_domains: Dataset) -> None:
    settings = DOMAINS.model_copy(update={"method": "fedbn", "partition": "iid", "rounds": 1})
    federation = prepare(settings, {})
    run = trained(tmp_path, settings, federation=federation)
    federation.model.load_state_dict(weights(run.final))
    expected = EvaluationScore.from_sums(
        score_sums(federation.model, federation.dataset.test, federation.pipeline), two_domains.domains
    )
    assert run.metrics()[-1].domains == pytest.approx(expected.domains)


@pytest.mark.parametrize(
    ("method", "change", "mend"),
    [
        ("fedbn", {"partition": "longtail_stateless", "phi": 0.5, "rho": 0.1}, "choose another --partition"),
        ("fedbn", {"memory": "reset"}, "leave --memory reset out"),
        (
            "fedavg",
            {"memory": "reset", "momentum": 0.9, "optimizer_state": "client"},
            "--optimizer-state round",
        ),
        ("fedavg", {"eval_drop_last": True}, "leave --eval-drop-last out"),
    ],
)
def test_what_cannot_go_together_is_refused(method: str, change: dict[str, object], mend: str) -> None:
    settings = SMALL.model_copy(update={"method": method, **change})
    with pytest.raises(UserError, match=mend):
        check_compatible(settings, parse(method), ("plain", "inverted"))


def test_what_is_wrong_is_said_before_the_data_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_catalogue, "load", lambda *_: pytest.fail("loaded"))
    for change in (
        {"alpha": -1.0}, {"model": "resnet5"}, {"method": "fedbn", "eval_model": "all"},
        {"shift": "fixed10", "rounds": 3}, {"participation": 0.01},
    ):  # fmt: skip
        with pytest.raises(UserError):
            prepare(SMALL.model_copy(update=change), {})
    with pytest.raises(UserError, match="no option"):
        prepare(SMALL, {"foo.bar": "1"})


def test_a_reset_memory_is_not_kept(tmp_path: Path) -> None:
    run = trained(tmp_path, SMALL.model_copy(update={"method": "feddyn", "memory": "reset", "rounds": 1}))
    (rows,) = run.folder.glob("state/round-*/clients.f32")
    assert rows.stat().st_size == 0
