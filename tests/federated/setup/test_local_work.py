"""Stragglers: how many there are, how much they do, and what the rules make of it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import chisquare

from fedscope.checkpoints.file.checkpoint import load_checkpoint
from fedscope.checkpoints.file.settings import Settings
from fedscope.federated.setup.local_work import mean_work, stragglers
from tests.federated.runs import trained

SMALL = Settings(
    model="mlp_digits", partition="iid", alpha=None, clients=6, rounds=2, epochs=4, batch_size=16, lr=0.05,
    train_samples=200, test_samples=20, weight_decay=0.0, stragglers=0.5, straggler_min=2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"epochs": 5, "straggler_min": 1}, range(1, 6)),
        ({"local_steps": 9, "straggler_min": 7}, range(7, 10)),
    ],
)
def test_stragglers_are_a_share_with_uniform_work(fields: dict[str, Any], values: range) -> None:
    settings = Settings(stragglers=0.9, **fields)
    sampled = list(range(3, 33, 3))
    drawn = [stragglers(settings, sampled, round) for round in range(1, 301)]
    assert {len(found) for found in drawn} == {9}
    assert set().union(*drawn) == set(sampled)
    work = Counter(number for found in drawn for number in found.values())
    assert set(work) == set(values)
    assert chisquare([work[value] for value in values]).pvalue > 0.01
    who = Counter(client for found in drawn for client in found)
    assert chisquare([300 - who[client] for client in sampled]).pvalue > 0.01
    mean = sum(number * count for number, count in work.items()) / 2700
    assert mean_work(settings) == pytest.approx(0.1 * max(values) + 0.9 * mean, abs=0.1)


def test_the_draw_is_the_rounds_and_the_seeds() -> None:
    one = stragglers(SMALL, [0, 1, 2, 3], 1)
    assert one == stragglers(SMALL.model_copy(update={"method": "fednova", "lr": 1.0}), [0, 1, 2, 3], 1)
    others = [stragglers(SMALL.model_copy(update={"seed": seed}), [0, 1, 2, 3], 1) for seed in range(1, 9)]
    assert any(other != one for other in others)
    assert stragglers(SMALL.model_copy(update={"stragglers": 0.1}), [0, 1, 2, 3], 1) == {}


def test_fednova_divides_by_the_steps_that_each_has_made(tmp_path: Path) -> None:
    """θ + (Σ p_k τ_k) Σ p_k (w_k − θ)/τ_k of Wang et al. 2020, from the models that clients sent."""
    settings = SMALL.model_copy(update={"method": "fednova", "save_clients": "all", "keep_every": 1})
    run = trained(tmp_path, settings)
    record = run.metrics()[1]
    assert sorted(record.local_work)[3:] == [4, 4, 4]
    assert set(record.local_work) <= {2, 3, 4}
    counts = run.manifest().rows
    assert counts is not None
    sizes = [counts.counts[client] for client in record.clients]
    steps = [work * -(-size // 16) for work, size in zip(record.local_work, sizes, strict=True)]
    assert record.gradients == sum(steps)

    def flat(path: Path) -> torch.Tensor:
        return torch.cat([tensor.double().flatten() for tensor in load_checkpoint(path).state.values()])

    start, shares = flat(run.after_round(1)), [size / sum(sizes) for size in sizes]
    sent = [flat(run.client(client, 2)) for client in record.clients]
    reached = sum(share * tau for share, tau in zip(shares, steps, strict=True))
    mean = torch.zeros_like(start)
    for share, tau, w in zip(shares, steps, sent, strict=True):
        mean += share * (w - start) / tau
    torch.testing.assert_close(flat(run.final), start + reached * mean, rtol=1e-5, atol=1e-6)


def test_a_stack_is_its_clients_one_by_one(tmp_path: Path) -> None:
    ends = []
    for stack in (1, 3):
        run = trained(
            tmp_path, SMALL.model_copy(update={"stack": stack, "stragglers": 0.7}), name=f"s{stack}"
        )
        ends.append(torch.cat([t.flatten() for t in load_checkpoint(run.final).state.values()]))
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-4, atol=1e-5)
