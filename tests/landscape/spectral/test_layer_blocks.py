from collections.abc import Sequence

import torch

from fedscope.landscape import Hessian
from fedscope.landscape.spectral.layer_blocks import block_patterns, layer_eigenpairs, layer_patterns
from tests.landscape.cases import mlp


def test_each_layers_largest_eigenvalues_are_those_of_its_block() -> None:
    case, seen, most = mlp(), list[int](), list[int]()
    dense = case.dense()

    def restricted(names: Sequence[str]) -> Hessian:
        return Hessian(case.model, case.loss_fn, case.batches, parameters=names)

    patterns = layer_patterns(case.names)
    assert patterns == ["0.*", "2.*"]

    def told(done: int, total: int, *_: str) -> None:
        seen.append(done)
        most.append(total)

    found = layer_eigenpairs(restricted, [*patterns, "2.bias"], k=4, tol=1e-9, progress=told)
    assert most[0] == 3 * 420  # 300 products and 30 for each pair
    assert all(done <= total for done, total in zip(seen, most, strict=True))
    blocks = {"0.*": slice(0, 30), "2.*": slice(30, 51), "2.bias": slice(48, 51)}
    assert list(found) == list(blocks)
    for layer, block in blocks.items():
        expected = torch.linalg.eigvalsh(dense[block, block]).flip(0)[:4]
        torch.testing.assert_close(found[layer].values, expected, rtol=1e-7, atol=1e-9)
        assert found[layer].converged
        assert found[layer].subspace is None  # nobody asks for the layers' bases
        assert bool(found[layer].stderr_data.isfinite().all())
    assert seen[-1] == sum(pairs.matvecs for pairs in found.values())
    alone = layer_eigenpairs(restricted, ["2.*"], k=4, tol=1e-9)["2.*"]
    assert torch.equal(alone.vectors, found["2.*"].vectors)


def test_a_parameter_outside_any_module_is_its_own_layer() -> None:
    assert layer_patterns(["scale", "a.weight", "a.bias", "a.b.weight"]) == ["scale", "a.*", "a.b.*"]


def test_a_block_is_what_stands_under_a_number() -> None:
    names = ["h.wte.weight", "h.0.a.weight", "h.0.b.c.bias", "h.10.a.weight", "h.1.2.a", "ln.weight", "scale"]
    assert block_patterns(names) == ["h.wte.*", "h.0.*", "h.10.*", "h.1.*", "ln.*", "scale"]
