"""Kept, rebuilt and cut graphs give the same products."""

import os

import pytest
import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.landscape import Batches, EmpiricalFisher, GaussNewton, Hessian
from fedscope.landscape.operators.empirical_risk import LossOperator
from fedscope.landscape.operators.products import graph_cache
from fedscope.landscape.operators.products.graph_cache import GraphBytes, Graphs
from tests.landscape.cases import convnet
from tests.landscape.nets import net_case

KINDS: list[type[LossOperator]] = [Hessian, GaussNewton, EmpiricalFisher]


@pytest.mark.parametrize("kind", KINDS)
def test_cut_batches_keep_their_forms_and_projections(kind: type[LossOperator]) -> None:
    case = convnet()
    roomy = kind(case.model, case.loss_fn, case.batches)
    each = roomy.plan.size // 8
    tight = kind(case.model, case.loss_fn, case.batches, memory=3 * each)
    assert roomy.plan.microbatch == 8
    assert 1 <= tight.plan.microbatch <= 3
    assert tight.plan.graphs > roomy.plan.graphs == 4
    g = torch.Generator().manual_seed(0)
    v, onto = torch.randn(81, dtype=torch.float64, generator=g), torch.eye(81, dtype=torch.float64)[:5]
    for left, right in zip(
        vars(roomy.product(v, onto=onto)).values(), vars(tight.product(v, onto=onto)).values(), strict=True
    ):
        torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_kept_and_rebuilt_graphs_give_the_same_bits(kind: type[LossOperator]) -> None:
    case = convnet()
    rows = torch.randn(3, 81, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    operators = [kind(case.model, case.loss_fn, case.batches) for _ in range(3)]
    size = operators[0].plan.size
    operators[1] = kind(case.model, case.loss_fn, case.batches, memory=size)
    operators[2] = kind(case.model, case.loss_fn, case.batches, memory=2 * size)
    assert [operator.plan.kept for operator in operators] == [4, 0, 1]
    products = [operator.products(rows) for operator in operators for _ in range(2)]  # twice each
    for found in products[1:]:
        for left, right in zip(products[0], found, strict=True):
            assert torch.equal(left.vector, right.vector)
            assert left.forms is not None
            assert right.forms is not None
            assert torch.equal(left.forms, right.forms)


def test_a_block_of_vectors_is_the_vectors_one_by_one() -> None:
    operator = net_case("tied").operator
    rows = torch.randn(4, operator.shape[0], dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for v, product in zip(rows, operator.products(rows), strict=True):
        assert torch.equal(product.vector, operator.product(v).vector)


def test_a_loss_that_is_no_mean_over_samples_is_not_cut() -> None:
    case = convnet()
    weights = torch.tensor([1.0, 5.0, 0.1], dtype=torch.float64)
    loss_fn = nn.CrossEntropyLoss(weight=weights)  # divides by the batch's own sum of weights
    operator = Hessian(case.model, loss_fn, case.batches)
    v = torch.ones(81, dtype=torch.float64)
    assert operator.plan.microbatch == 8
    with pytest.raises(UserError, match="cannot be cut"):
        Hessian(case.model, loss_fn, case.batches, memory=operator.plan.size // 2).matvec(v)
    whole = Batches(case.inputs, case.targets, 26)
    coupled = Hessian(case.model, case.loss_fn, whole, bn="batch")
    assert coupled.plan.microbatch == 26
    with pytest.raises(UserError, match="bn='batch'"):
        Hessian(case.model, case.loss_fn, whole, bn="batch", memory=coupled.plan.size // 2).matvec(v)


def test_negative_memory_is_refused() -> None:
    case = convnet()
    with pytest.raises(UserError, match="memory is -1"):
        Hessian(case.model, case.loss_fn, case.batches, memory=-1)


def test_measured_bytes_are_those_of_the_saved_tensors() -> None:
    """A chain of three elementwise products of a (samples, 1000) matrix: what it saves is known."""
    operator = Hessian(_Cube(), lambda o, _: o.mean(), Batches(torch.randn(64, 1000), torch.zeros(64)))
    # Forward and backward together hold x and a few float32 products of it, and nothing else large.
    assert 2 * 64_000 * 4 <= operator.plan.size <= 12 * 64_000 * 4


class _Cube(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(1000))

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.w) ** 3


def test_as_many_graphs_as_fit_are_kept_and_the_others_rebuilt() -> None:
    built: list[int] = []

    def build(inputs: Tensor, targets: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        built.append(len(inputs))
        return (inputs,), torch.tensor(float(len(built)))

    data = Batches(torch.zeros(10, 1), torch.zeros(10), 4)  # 4, 4, 2 samples
    graphs = Graphs(build, data, GraphBytes(10, 1), most=2, memory=40)  # 12 bytes each, five of them
    assert [len(graphs.parts(b)) for b in range(3)] == [2, 2, 1]
    assert (graphs.plan.kept, graphs.plan.graphs, graphs.plan.size) == (2, 5, 12)
    for _ in range(2):
        for b in range(3):
            for part in graphs.parts(b):
                assert len(graphs.graph(b, part)[0]) == 2
    assert built == [2] * 5 + [2] * 3
    assert str(graphs.plan) == "5 graphs of at most 2 samples (0 MiB), 2 kept between products"
    assert [graphs.share(0, part) for part in graphs.parts(0)] == [0.5, 0.5]
    assert [float(graphs.loss(b)) for b in range(3)] == [1.5, 6.5, 8]  # of the graphs built last


def test_the_weights_do_not_make_micro_batches_smaller() -> None:
    mib = 1 << 20
    large = GraphBytes(fixed=600 * mib, each=mib)  # some 130 M float32 weights
    assert large.fitting(256, None) == 256
    assert large.fitting(2048, None) == 512
    assert large.fitting(2048, 700 * mib) == 100  # the whole is what the user bounds
    assert large.fitting(2048, 500 * mib) == 1
    assert large.fitting(2048, 4096 * mib) == 512


def test_a_network_of_many_weights_is_not_cut_by_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedscope.landscape.operators.products.graph_cache._WORKING", 1 << 18)
    model = nn.Sequential(nn.Linear(9, 300), nn.Tanh(), nn.Linear(300, 300), nn.Tanh(), nn.Linear(300, 2))
    batches = Batches(torch.randn(64, 9), torch.zeros(64, dtype=torch.long), 64)
    plan = Hessian(model, nn.functional.cross_entropy, batches).plan
    assert plan.size > 1 << 18  # the weights alone are 360 kB
    assert 8 < plan.microbatch < 64


@pytest.mark.parametrize(
    ("microbatch", "mebibytes", "together"),
    [(8, 64, 64), (8, 8, 128), (8, 4096, 8), (256, 64, 256), (256, 1, 8192)],
)
def test_batches_work_together_as_far_as_memory_goes(microbatch: int, mebibytes: int, together: int) -> None:
    """512 MiB; 128 samples, or those of 32 MiB; or what one graph has."""
    assert GraphBytes(0, (mebibytes << 20) / microbatch).together(microbatch) == together


def test_a_gpu_takes_larger_graphs() -> None:
    """An eighth of its memory: small graphs would leave it waiting for launches."""
    gib = 1 << 30
    small, large = GraphBytes(gib, gib / 8), GraphBytes(gib, gib / 8, own=80 * gib)
    assert (small.fitting(256, None), large.fitting(256, None)) == (4, 80)
    assert large.fitting(256, 3 * gib) == 16  # the user's bound holds
    assert (small.joining(None), large.joining(None)) == (0, 80)
    assert (small.together(4), large.together(4)) == (4, 80)
    assert large.copied == 10 * gib
    assert (GraphBytes(gib, 5 * gib).exceeds(None), GraphBytes(gib, 5 * gib, own=80 * gib).exceeds(None)) == (
        True,
        False,
    )


@pytest.mark.parametrize(("size", "memory", "exceeds"), [(3, None, False), (5, None, True), (3, 2, True)])
def test_a_sample_may_have_all_that_graphs_may_take(size: int, memory: int | None, exceeds: bool) -> None:
    gib = 1 << 30
    assert GraphBytes(gib, (size - 1) * gib).exceeds(memory and memory * gib) is exceeds


def test_what_graphs_may_take_is_less_than_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_cache, "_MOST", 2**60)
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert whole / 10_000 < graph_cache._free(torch.device("cpu")) <= whole / 4
