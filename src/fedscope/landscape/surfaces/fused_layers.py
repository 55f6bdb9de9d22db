"""A convolutional network's forward pass in the fused operations of PyTorch's CPU library, oneDNN.

A convolution, the BatchNorm after it, an addition and a ReLU are one operation there, and nothing between
them goes through memory. Which of them belong together is read off the graph that :mod:`torch.fx` traces;
networks that it cannot trace are not fused. BatchNorm is folded (see
:mod:`fedscope.landscape.loss.kernels.bn_folding`) once per point.

oneDNN's ReLU makes 0 of NaN. So a ReLU straight after a convolution runs as a leaky one whose slope is lost
in rounding but which keeps NaN, and one after an addition is PyTorch's own, in place.
"""

import copy
import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp

_SLOPE = 1e-20
_ADDITIONS = (operator.add, operator.iadd, torch.add)
_RELUS = (torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_)


class Fused:
    """A network whose weights and statistics can be set, and which is then evaluated without derivatives."""

    def __init__(self, model: nn.Module, example: Tensor, dtype: torch.dtype) -> None:
        self._source = copy.deepcopy(model)  # float32
        self._low = self._source if dtype == torch.float32 else copy.deepcopy(model).to(dtype)
        self._sites: list[_Site] = []
        self.dtype = dtype
        self._graph = self._fused(laid_out(example.to(dtype)))
        self.load({})

    def __call__(self, inputs: Tensor) -> Any:
        return self._graph(inputs)

    @property
    def fused(self) -> int:
        return len(self._sites)

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        models = (self._source,) if self._low is self._source else (self._source, self._low)
        for model in models:
            for name, value in tensors.items():
                module, _, attribute = name.rpartition(".")
                getattr(model.get_submodule(module), attribute).copy_(value)
        for site in self._sites:
            site.fold()

    def _fused(self, example: Tensor) -> fx.GraphModule:
        graph = fx.Tracer().trace(self._low)
        module = fx.GraphModule(self._low, graph)
        ShapeProp(module).propagate(example)
        calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
        for node in list(graph.nodes):
            if node.op == "call_module" and _is_convolution(module.get_submodule(str(node.target))):
                self._fuse(module, node, calls)
        graph.lint()
        module.recompile()
        return module

    def _fuse(self, module: fx.GraphModule, node: fx.Node, calls: Counter[Any]) -> None:
        """Put one operation in the place of a convolution and of what follows it alone."""
        chain, norm, other = [node], None, None
        if (
            (user := _sole_user(node))
            and _is_norm(module, user)
            and calls[node.target] == calls[user.target] == 1
        ):
            norm = self._source.get_submodule(str(user.target))
            chain.append(user)
        if (user := _sole_user(chain[-1])) and (other := _added(user, chain[-1])):
            chain.append(user)
        relu = (user := _sole_user(chain[-1])) is not None and _is_relu(module, user)
        chain += [user] if user is not None and relu else []
        site = _Site(self._source.get_submodule(str(node.target)), norm, relu, self.dtype)
        name = f"fused{len(self._sites)}"
        self._sites.append(site)
        module.add_submodule(name, site)
        with module.graph.inserting_before(chain[-1]):
            fused = module.graph.call_module(name, (node.args[0], *([other] if other else [])))
        fused.meta = chain[-1].meta
        chain[-1].replace_all_uses_with(fused)
        for old in reversed(chain):
            module.graph.erase_node(old)


class _Site(nn.Module):
    """A convolution, BatchNorm by running statistics or none, and a ReLU or none, as one operation."""

    def __init__(self, layer: nn.Module, norm: nn.Module | None, relu: bool, dtype: torch.dtype) -> None:
        super().__init__()
        assert isinstance(layer, nn.Conv2d)
        self._from = (layer, norm)  # a tuple, so that they are no submodules of the graph's
        self._relu = relu
        self._geometry = (list(layer.padding), list(layer.stride), list(layer.dilation), layer.groups)
        self._shape: list[int] = []  # for which the weights are packed
        self._packed = torch.empty(0)
        self._exact = torch.empty_like(layer.weight, memory_format=torch.channels_last)
        self.weight = self._exact if dtype == torch.float32 else self._exact.to(dtype)
        self.bias = torch.zeros(len(layer.weight), dtype=dtype)

    @torch.no_grad()
    def fold(self) -> None:
        self._shape = []
        layer, norm = self._from
        weight, bias = layer.weight, layer.bias
        scale, shift = None, torch.zeros(len(weight)) if bias is None else bias
        if isinstance(norm, nn.BatchNorm2d):
            assert norm.running_mean is not None
            assert norm.running_var is not None
            scale = (norm.running_var.double() + norm.eps).rsqrt()
            scale = scale if norm.weight is None else scale * norm.weight
            shift = (shift - norm.running_mean.double()) * scale
            shift = shift if norm.bias is None else shift + norm.bias
        self.bias.copy_(shift)
        if scale is None:
            self.weight.copy_(weight)
        else:
            torch.mul(weight, scale.float().view(-1, 1, 1, 1), out=self._exact)
            if self.weight is not self._exact:
                self.weight.copy_(self._exact)

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        """Return the operation's output, which keeps NaN and infinity."""
        output: Tensor
        call = torch.ops.mkldnn._convolution_pointwise
        weight = self._packed_for(list(x.shape))
        if other is None:
            slope = ("leaky_relu", [_SLOPE], "") if self._relu else ("none", [], "")
            output = call(x, weight, self.bias, *self._geometry, *slope)
            return output
        output = call(x, other, weight, self.bias, *self._geometry, "add", 1.0, None, [], None)
        return output.relu_() if self._relu else output

    def _packed_for(self, shape: list[int]) -> Tensor:
        """Return the weights in the library's own order, which is found once for all blocks of a shape."""
        if shape != self._shape:
            pack = torch.ops.mkldnn._reorder_convolution_weight
            self._shape, self._packed = shape, pack(self.weight, *self._geometry, shape)
        return self._packed


def fusible(model: nn.Module) -> bool:
    """Say whether fusing may pay: float32 convolutions on the CPU, and no hooks in between."""
    modules = list(model.modules())
    floats = [t for t in model.state_dict().values() if t.is_floating_point()]
    return (
        torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
        and all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in floats)
        and any(map(_is_convolution, modules))
        and not any(module._forward_hooks or module._forward_pre_hooks for module in modules)
        and not any("forward" in module.__dict__ for module in modules)
    )


def laid_out(x: Tensor) -> Tensor:
    """Return images in the order of memory that is fastest, others as they are."""
    return x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x


def _is_convolution(module: nn.Module) -> bool:
    return (
        type(module) is nn.Conv2d and module.padding_mode == "zeros" and not isinstance(module.padding, str)
    )


def _sole_user(node: fx.Node) -> fx.Node | None:
    """Return the one node that uses this one, once; None if it is an output, or used otherwise."""
    users = list(node.users)
    alone = len(users) == 1 and users[0].op != "output" and users[0].all_input_nodes.count(node) == 1
    return users[0] if alone else None


def _is_norm(module: fx.GraphModule, node: fx.Node) -> bool:
    norm = module.get_submodule(str(node.target)) if node.op == "call_module" else None
    return type(norm) is nn.BatchNorm2d and isinstance(norm.running_mean, Tensor)


def _is_relu(module: fx.GraphModule, node: fx.Node) -> bool:
    if node.op == "call_module":
        return type(module.get_submodule(str(node.target))) is nn.ReLU
    return node.target in (_RELUS if node.op == "call_function" else ("relu", "relu_"))


def _added(node: fx.Node, term: fx.Node) -> fx.Node | None:
    """Return the image of the same shape that ``node`` adds to ``term``; None if it does something else."""
    named = node.target in (_ADDITIONS if node.op == "call_function" else ("add", "add_"))
    others = [a for a in node.args if a is not term]
    if not named or node.op == "call_module" or node.kwargs or len(node.args) != 2 or len(others) != 1:
        return None
    shapes = [
        getattr(n.meta.get("tensor_meta"), "shape", None) for n in (term, others[0]) if isinstance(n, fx.Node)
    ]
    other = others[0]
    same = len(shapes) == 2 and shapes[0] is not None and shapes[0] == shapes[1]
    return other if same and isinstance(other, fx.Node) else None
