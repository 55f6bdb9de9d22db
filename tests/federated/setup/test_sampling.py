import pytest

from fedscope.errors import UserError
from fedscope.federated.setup.sampling import sample_clients


def test_all_is_everyone_in_order_without_a_draw() -> None:
    assert sample_clients("all", 4, 1.0, 0, 0) == sample_clients("all", 4, 1.0, 9, 3) == [0, 1, 2, 3]


def test_the_draw_depends_on_seed_and_round_alone() -> None:
    for kind in ("fixed_fraction", "bernoulli"):
        draws = {(s, t): tuple(sample_clients(kind, 100, 0.1, s, t)) for s in (1, 2) for t in range(3)}
        assert len(set(draws.values())) == 6
        assert all(list(drawn) == sample_clients(kind, 100, 0.1, *key) for key, drawn in draws.items())


@pytest.mark.parametrize(
    ("kind", "participation", "message"),
    [
        ("some", 1.0, "unknown sampling 'some'; choose one of fixed_fraction, bernoulli, all"),
        ("all", 0.5, "takes everyone; leave --participation 0.5 out"),
        ("bernoulli", 1e-9, "is nobody"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, participation: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        sample_clients(kind, 5, participation, 0, 0)
