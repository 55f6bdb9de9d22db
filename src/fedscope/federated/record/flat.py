"""A network as one vector: parameters, gradients and floating buffers are views of flat tensors.

With every parameter a view of one vector, an optimizer step, a gradient's norm, a proximal term and an
upload are each one tensor operation, however many layers there are. Convolution kernels of the catalogue's
networks lie channels-last in the vector, the layout that convolutions are fastest in.

In fp32 on an H100 training failed ("misaligned address") where a normalisation's statistics did not begin at
a multiple of 16 bytes, as after a last layer of ten outputs, and nowhere else: cuDNN's kernel seems to read
four numbers at a time. PyTorch's own kernel takes them anywhere.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

BYTES = 16


def normalise_where_it_lies(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, _BatchNorm) and not _aligned(part):
            own = _OwnKernel()
            part.register_forward_pre_hook(own.begin)
            part.register_forward_hook(own.end, always_call=True)


def _aligned(part: _BatchNorm) -> bool:
    tensors = (part.weight, part.bias, part.running_mean, part.running_var)
    return not any(tensor is not None and tensor.data_ptr() % BYTES for tensor in tensors)


class _OwnKernel:
    """Turns cuDNN off for a forward pass, and then back to what it was."""

    before = True

    def begin(self, *_: object) -> None:
        self.before, torch.backends.cudnn.enabled = torch.backends.cudnn.enabled, False

    def end(self, *_: object) -> None:
        torch.backends.cudnn.enabled = self.before


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor of the network lies in the flat vector."""

    start: int
    shape: torch.Size
    channels_last: bool = True  # of a convolution's kernel

    def view(self, vector: Tensor) -> Tensor:
        """Return the tensor's view of ``vector`` (…, P+Q) as (…, *shape)."""
        piece = vector.narrow(-1, self.start, self.shape.numel())
        lead = piece.shape[:-1]
        if len(self.shape) != 4 or not self.channels_last:
            return piece.view(*lead, *self.shape)
        outputs, inputs, height, width = self.shape
        return piece.view(*lead, outputs, height, width, inputs).movedim(-1, -3)


class FlatModel:
    """``module`` with its P trainable parameters, then its Q other floating tensors, in one vector.

    ``values``: (stack, P+Q); the module computes with row 0, and with any row through :meth:`tensors`.
    ``gradient``: (stack, P); a backward pass through the module adds to row 0. ``counters``: the integer
    buffers, (n,) int64. The module must not be moved or converted afterwards.
    """

    def __init__(self, module: nn.Module, stack: int = 1, *, channels_last: bool = True):
        self.module, self.channels_last = module, channels_last
        trainable = {id(p): p for p in module.parameters() if p.requires_grad}
        rest = {
            id(t): t
            for t in (*module.parameters(), *module.buffers())
            if t.is_floating_point() and id(t) not in trainable
        }
        # A counter is one number; tables, such as positions, are the module's own and never change.
        integers = {id(b): b for b in module.buffers() if b.dtype == torch.int64 and b.numel() == 1}
        tables = {id(b) for b in module.buffers() if not b.is_floating_point()} - integers.keys()
        floats = {**trainable, **rest}
        first = next(iter(trainable.values()))
        if any(t.dtype != first.dtype for t in floats.values()):
            raise ValueError("all parameters and floating buffers must have one dtype")
        self.size = sum(p.numel() for p in trainable.values())  # P
        width = self.size + sum(t.numel() for t in rest.values())
        self.values = first.new_zeros(stack, width, requires_grad=False)
        self.gradient = first.new_zeros(stack, self.size, requires_grad=False)
        self.counters = torch.zeros(len(integers), dtype=torch.int64, device=first.device)
        # The leaf through which terms of the parameters alone reach the same gradient as the layers.
        self.parameters = self.values[0, : self.size].detach().requires_grad_()
        self.parameters.grad = self.gradient[0]
        places, start = {}, 0
        for key, tensor in floats.items():
            places[key] = TensorPlace(start, tensor.shape, channels_last)
            start += tensor.numel()
        self._ordered = list(places.values())
        named = [
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        ]
        self._places = {name: places[id(t)] for name, t in named if id(t) in places}
        self._tables = {name: t for name, t in named if id(t) in tables}
        order = {key: index for index, key in enumerate(integers)}
        self._counted = {name: order[id(t)] for name, t in named if id(t) in order}
        for key, tensor in floats.items():
            view = places[key].view(self.values[0])
            view.copy_(tensor.detach())
            tensor.data = view
            if key in trainable:
                tensor.grad = places[key].view(self.gradient[0])
        for index, tensor in enumerate(integers.values()):
            self.counters[index] = tensor
            tensor.data = self.counters[index].view(tensor.shape)
        if first.device.type == "cuda":
            normalise_where_it_lies(module)

    def tensors(self, parameters: Tensor, buffers: Sequence[Tensor], counters: Tensor) -> dict[str, Tensor]:
        """Return the module's tensors by name: views of ``parameters`` (P,), ``buffers``, ``counters`` (n,).

        Differentiable in the parameters: the backward pass is one concatenation.
        """
        inside = self._ordered[: len(self._ordered) - len(buffers)]
        pieces = parameters.split([place.shape.numel() for place in inside])
        found = {
            place.start: replace(place, start=0).view(piece)
            for place, piece in zip(inside, pieces, strict=True)
        }
        found |= {
            place.start: buffer for place, buffer in zip(self._ordered[len(inside) :], buffers, strict=True)
        }
        return {name: found[place.start] for name, place in self._places.items()} | {
            name: counters[index] for name, index in self._counted.items()
        }

    def named(self, vectors: Tensor) -> dict[str, Tensor]:
        """Return the parameters in ``vectors`` (…, P) by name, each a view (…, *shape)."""
        return {name: place.view(vectors) for name, place in self._places.items() if place.start < self.size}

    def buffers(self, values: Tensor) -> list[Tensor]:
        """Return the floating buffers in ``values`` (…, P+Q), each a view (…, *shape)."""
        return [place.view(values) for place in self._ordered if place.start >= self.size]

    def mask(self, names: Collection[str]) -> Tensor:
        """Return which of the P+Q numbers belong to the tensors called ``names``, (P+Q,) bool."""
        chosen = torch.zeros(self.values.shape[1], dtype=torch.bool, device=self.values.device)
        for name in names:
            if name in self._places:
                self._places[name].view(chosen).fill_(True)
        return chosen

    def positions(self, names: Collection[str]) -> Tensor:
        """Return where in the P+Q numbers those of the tensors called ``names`` are, ascending, int64."""
        found = sorted({self._places[name] for name in names if name in self._places}, key=lambda p: p.start)
        pieces = [torch.arange(p.start, p.start + p.shape.numel(), device=self.values.device) for p in found]
        return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.int64, device=self.values.device)

    def state_dict(self, values: Tensor, counters: Tensor) -> dict[str, Tensor]:
        """Return copies of the tensors that ``values`` (P+Q,) and ``counters`` (n,) hold, on the CPU."""
        names = self.module.state_dict().keys()
        copies = dict(self._copies(values.cpu(), counters.cpu()))
        return {name: copies[name] for name in names if name in copies}

    def arranged(self, inputs: Tensor) -> Tensor:
        """Return images (B, C, H, W) in the kernels' layout, and other inputs as they are."""
        return channels_last(inputs) if self.channels_last else inputs

    def typed(self, inputs: Tensor) -> Tensor:
        """Return inputs in the parameters' dtype; whole numbers, such as tokens, as they are."""
        return inputs.to(self.values.dtype) if inputs.is_floating_point() else inputs

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.module.load_state_dict(state)

    def _copies(self, values: Tensor, counters: Tensor) -> Iterator[tuple[str, Tensor]]:
        for name, place in self._places.items():
            yield name, place.view(values).clone(memory_format=torch.contiguous_format)
        for name, index in self._counted.items():
            yield name, counters[index].clone()
        for name, table in self._tables.items():
            yield name, table.cpu().clone()


def channels_last(inputs: Tensor) -> Tensor:
    """Return images (B, C, H, W) in the layout that convolutions are fastest in; other inputs as they are."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs
