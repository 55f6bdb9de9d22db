"""A Vision Transformer is trained and measured as any network: stacked clients, exact second derivatives."""

import torch
from torch.autograd.functional import hessian
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from fedscope.landscape import Batches, Hessian
from fedscope.models.transformer import VisionTransformer

GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(5, 1, 8, 8, dtype=torch.float64, generator=GENERATOR)
TARGETS = torch.tensor([0, 1, 2, 1, 0])


def tiny() -> VisionTransformer:
    model = VisionTransformer(3, 1, side=8, patch=4, width=4, depth=1, heads=2).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4, generator=GENERATOR)
    return model


def test_its_hessian_is_the_dense_one() -> None:
    model = tiny()
    named = {name: p.detach() for name, p in model.named_parameters()}
    shapes = [p.shape for p in named.values()]

    def loss(flat: torch.Tensor) -> torch.Tensor:
        pieces = flat.split([shape.numel() for shape in shapes])
        tensors = {n: piece.view(s) for n, piece, s in zip(named, pieces, shapes, strict=True)}
        return cross_entropy(functional_call(model, tensors, (INPUTS,)), TARGETS)

    flat = parameters_to_vector(named.values())
    dense = hessian(loss, flat)
    assert isinstance(dense, torch.Tensor)
    operator = Hessian(model, cross_entropy, Batches(INPUTS, TARGETS, batch_size=2))
    v = torch.randn(len(flat), 2, dtype=torch.float64, generator=GENERATOR)
    torch.testing.assert_close(operator.matmat(v), dense @ v, rtol=1e-9, atol=1e-9)


def test_a_stack_of_them_is_each_alone() -> None:
    models = [tiny() for _ in range(3)]
    names = [name for name, _ in models[0].named_parameters()]
    stacked = {name: torch.stack([m.get_parameter(name).detach() for m in models]) for name in names}
    together = vmap(lambda tensors: functional_call(models[0], tensors, (INPUTS,)))(stacked)
    torch.testing.assert_close(together, torch.stack([m(INPUTS) for m in models]), rtol=1e-12, atol=1e-12)
