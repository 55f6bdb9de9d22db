"""What is said of a Hessian record that fell short of its tolerance."""

from typing import Any

import pytest

from fedscope.cli.terminal.hessian_shown import shown
from fedscope.records.hessian_record import HessianRecord
from tests.figures.records import curvature

FEWER, LOOSER = "a smaller --top-k converges sooner", "a larger --tol is reached sooner"


def notes(**fields: Any) -> str:
    content = curvature()
    content["converged"] = False
    content["lambda_max"] |= {"value": 4.0, "residual": 2e-4}
    content["problem"]["products"] = fields.pop("products", None)
    content["eigenvalues"] = [content["lambda_max"]] * fields.pop("pairs")
    record = HessianRecord.read({**content, **fields})
    return "\n".join(piece[1] for piece in shown([record]) if piece[0] == "note")


@pytest.mark.parametrize(
    ("pairs", "both_ends", "said"),
    [(1, False, LOOSER), (2, False, FEWER), (2, True, LOOSER), (4, True, FEWER)],
)
def test_fewer_pairs_are_advised_where_there_are_several(pairs: int, both_ends: bool, said: str) -> None:
    found = notes(pairs=pairs, both_ends=both_ends)
    assert [advice in found for advice in (FEWER, LOOSER)] == [advice == said for advice in (FEWER, LOOSER)]


def test_of_finite_differences_the_bound_of_the_residual_is_told() -> None:
    found = notes(pairs=1, products="finite-differences")
    assert (
        "finite differences in it, is 5.0e-05 of λ_max; raise --tol above that, or take --products exact"
        in found
    )
    assert "--top-k" not in found
