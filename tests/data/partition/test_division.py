import pytest
import torch

from fedscope.checkpoints.file.settings import Settings
from fedscope.data.loading.datasets import Split
from fedscope.data.partition.division import divided, division
from fedscope.data.partition.draw_partition import divide
from fedscope.errors import UserError

SPLIT = Split(torch.zeros(200, 1), torch.arange(200) % 4)


def _settings(**fields: object) -> Settings:
    return Settings.model_validate({"clients": 4, "partition": "iid", "alpha": None, "seed": 3, **fields})


def test_a_share_of_each_clients_rows_is_held_out() -> None:
    settings = _settings(validation=0.1)
    whole = divide(SPLIT, division(settings), train_samples=None, seed=3)
    clients, held_out = divided(SPLIT, settings)
    assert [len(rows) for rows in clients] == [45] * 4
    assert held_out.tolist() == sorted(set(range(200)) - set(torch.cat(clients).tolist()))
    for before, left in zip(whole, clients, strict=True):
        kept = [row for row in before.tolist() if row not in held_out]
        assert left.tolist() == kept  # in their order, which decides the batches
        assert len(set(before.tolist()) & set(held_out.tolist())) == 5


def test_the_draw_is_the_clients_own() -> None:
    one, other = (divided(SPLIT, _settings(validation=0.2, seed=seed)).validation for seed in (3, 4))
    assert not torch.equal(one, other)
    assert torch.equal(one, divided(SPLIT, _settings(validation=0.2)).validation)


def test_rows_that_clients_share_are_held_out_of_all() -> None:
    fields = {"partition": "dirichlet_equal", "alpha": 0.1, "exhausted": "refill", "clients": 10}
    clients, held_out = divided(SPLIT, _settings(validation=0.2, **fields))
    assert len(torch.cat(clients).unique()) < len(torch.cat(clients))
    assert not set(torch.cat(clients).tolist()) & set(held_out.tolist())


def test_nothing_is_held_out_unless_asked_for() -> None:
    clients, held_out = divided(SPLIT, _settings())
    assert (sum(map(len, clients)), len(held_out)) == (200, 0)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"validation": 0.01}, "raise"),
        ({"validation": 0.1, "partition": "longtail_stateless", "phi": 0.5, "rho": 0.1}, "new"),
    ],
)
def test_what_cannot_be_held_out_is_refused(fields: dict[str, object], word: str) -> None:
    with pytest.raises(UserError, match=word):
        divided(SPLIT, _settings(**fields))
