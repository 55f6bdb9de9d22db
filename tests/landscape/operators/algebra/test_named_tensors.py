import pytest
import torch

from fedscope.errors import UserError
from fedscope.landscape.operators.algebra.exports import flattened, unflattened

BLOCKS = (("weight", 6), ("bias", 2))
SHAPES = (torch.Size([2, 3]), torch.Size([2]))


def test_there_and_back_is_the_same_vector() -> None:
    vector = torch.arange(8.0)
    named = unflattened(vector, BLOCKS, SHAPES)
    assert torch.equal(named["weight"], torch.tensor([[0.0, 1, 2], [3, 4, 5]]))
    assert torch.equal(named["bias"], torch.tensor([6.0, 7]))
    backwards = dict(reversed(named.items()))
    assert torch.equal(flattened(backwards, BLOCKS, SHAPES), vector)


def test_a_column_of_a_matrix_is_cut_too() -> None:
    columns = torch.arange(16.0).view(8, 2)
    assert torch.equal(unflattened(columns[:, 1], BLOCKS, SHAPES)["bias"], torch.tensor([13.0, 15]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"biass": torch.zeros(2)}, "no tensor 'biass'; did you mean 'bias'"),
        ({"bias": torch.zeros(3)}, r"'bias' has shape \(3,\); expected \(2,\)"),
        ({"weight": torch.zeros(3, 2)}, r"'weight' has shape \(3, 2\)"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, torch.Tensor], said: str) -> None:
    with pytest.raises(UserError, match=said):
        flattened({"weight": torch.zeros(2, 3), "bias": torch.zeros(2), **change}, BLOCKS, SHAPES)
    with pytest.raises(UserError, match="'bias' is missing"):
        flattened({"weight": torch.zeros(2, 3)}, BLOCKS, SHAPES)
    with pytest.raises(UserError, match=r"expected \(8,\)"):
        unflattened(torch.zeros(9), BLOCKS, SHAPES)
