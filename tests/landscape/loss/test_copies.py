"""Networks whose parameters two processes share, against the same network in one."""

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy

from fedscope.errors import UserError
from fedscope.landscape import Hessian, surface, top_eigenpairs, whole_copy
from tests.processes import ranks

IMAGES = torch.randn(12, 6, generator=torch.Generator().manual_seed(1))
BATCHES = [(IMAGES[:6], torch.arange(6) % 4), (IMAGES[6:], torch.arange(6) % 3)]


def network() -> nn.Sequential:
    """Linear layers, BatchNorm, and a hook of the user's."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 8, bias=False), nn.Tanh(), nn.Linear(8, 4)
    )
    model[3].register_forward_hook(_doubled)
    return model.eval()


def _doubled(_: nn.Module, __: object, output: Tensor) -> Tensor:
    return 2 * output


def by_fully_shard(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Each layer, then what is left, as PyTorch advises."""
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def by_layers(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Tensor parallel: the outputs of the first of two layers are split, then the inputs of the second."""
    return parallelize_module(model, mesh, {"3": ColwiseParallel(), "5": RowwiseParallel()})


def by_hand(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Parameters and buffers as they are distributed without hooks."""
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(distribute_tensor(p.detach(), mesh, [Shard(0)])))
    norm = model.get_submodule("1")
    norm.running_mean = distribute_tensor(norm.get_buffer("running_mean"), mesh, [Shard(0)])
    return model


WAYS: dict[str, Callable[[nn.Module, DeviceMesh], nn.Module]] = {
    "fully_shard": by_fully_shard,
    "tensor parallel": by_layers,
    "by hand": by_hand,
}


def found_with(model: nn.Module, group: dist.ProcessGroup | None) -> dict[str, Tensor]:
    """A product, eigenpairs and a curve."""
    hessian = Hessian(model, cross_entropy, BATCHES, group=group)
    along = torch.randn(hessian.shape[0], generator=torch.Generator().manual_seed(2))
    pairs = top_eigenpairs(hessian, k=2, seed=0)
    alone = whole_copy(model)
    n = hessian.shape[0]
    curve = surface(alone, cross_entropy, BATCHES, directions=torch.ones(1, n).unbind(), grid=(5,))
    return {"product": hessian.matvec(along), "values": pairs.values, "curve": curve.loss}


def _work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        for name, way in WAYS.items():
            model = way(network(), mesh)
            if name == "fully_shard":
                model(IMAGES)  # leaves what is the whole network's own gathered
            kinds = [type(module) for module in model.modules()]
            found = found_with(model, dist.group.WORLD)
            assert [type(module) for module in model.modules()] == kinds
            copy = whole_copy(model)
            assert not any(isinstance(module, FSDPModule) for module in copy.modules())
            tensors = [*copy.parameters(), *copy.buffers()]
            assert not any(isinstance(tensor, DTensor) for tensor in tensors)
            if name != "by hand":  # whose inputs would have to be distributed as well
                assert torch.allclose(model(IMAGES), network()(IMAGES), atol=1e-6)
            assert any(isinstance(p, DTensor) for p in model.parameters())
            torch.save(found, Path(folder) / f"{name}{rank}.pt")
    finally:
        dist.destroy_process_group()
        gc.collect()


def test_a_sharded_network_gives_what_the_whole_one_gives(tmp_path: Path) -> None:
    ranks(2, _work, str(tmp_path))
    expected = found_with(network(), None)
    for name in WAYS:
        ours, theirs = (torch.load(tmp_path / f"{name}{rank}.pt") for rank in (0, 1))
        for key, value in expected.items():
            assert torch.equal(ours[key], theirs[key])
            assert torch.allclose(ours[key], value, rtol=1e-5, atol=1e-6), (name, key)


def test_flat_shards_are_refused() -> None:
    class FullyShardedDataParallel(nn.Module):
        """As much of PyTorch's first way as is looked at; it wants a process group."""

        def __init__(self) -> None:
            super().__init__()
            self._fsdp_wrapped_module = network()

    with pytest.raises(UserError, match="shard the network by fully_shard"):
        whole_copy(FullyShardedDataParallel())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_networks_without_shapes_or_without_python_are_refused_in_a_sentence() -> None:
    data = torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)
    lazy = nn.Sequential(nn.Linear(3, 2), nn.LazyLinear(2))
    with pytest.raises(
        UserError, match=r"1\.weight has no shape before the first batch: call the model once"
    ):
        Hessian(lazy, cross_entropy, data)
    lazy(data[0])
    assert Hessian(lazy, cross_entropy, data).shape == (14, 14)
    plain = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    for made in (torch.jit.script(plain), torch.jit.trace(plain, data[0])):
        with pytest.raises(
            UserError, match=r"the model is scripted or traced .* give the module that it was"
        ):
            Hessian(made, cross_entropy, data)
    with pytest.raises(UserError, match=r"^0 is scripted"):
        Hessian(nn.Sequential(torch.jit.script(plain), nn.Linear(2, 2)), cross_entropy, data)
