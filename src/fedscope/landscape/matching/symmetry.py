"""The permutations of channels that leave a network's function as it is, found for the network and tried.

A network computes the same where the channels of a layer are in another order, if all that reads them takes
them in that order too: a hidden layer's units and the next layer's inputs, a normalisation's scales, shifts
and running statistics, every layer that a skip connection adds to the same sum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from fedscope.errors import UserError
from fedscope.factories import reason
from fedscope.landscape.loss.batches import Batches, Data
from fedscope.landscape.loss.checks import close
from fedscope.landscape.loss.copies import whole_copy
from fedscope.landscape.loss.kernels.exact_arithmetic import attention_by_parts
from fedscope.landscape.loss.trees import Tree, arguments, cloned, flat, mapped, some
from fedscope.landscape.matching.channels import FIXED, Axis, Piece
from fedscope.landscape.matching.operations import RULES
from fedscope.landscape.matching.tracing import is_constant, trace
from fedscope.landscape.operators.probes import generator_of
from fedscope.landscape.printing import Printed

SAMPLES = 4  # on which the network is watched and tried
Permutations = Mapping[str, Tensor]
"""Group ↦ (channels,) int64: which of the old channels each new one is."""


@dataclass(frozen=True, repr=False)
class Symmetry(Printed):
    """Groups of channels that may be permuted.

    Attributes:
        groups: name ↦ number of channels, at least 2. A group is called as the first tensor's axis that holds
            it, ``conv1.weight[0]``; a part of one with its positions, ``layer2.0.branch.0.weight[0][16:32]``.
        axes: the axes of every tensor of the ``state_dict``, whose groups are numbered as in ``groups``.
        pinned: operations for whose sake channels stay where they are, because what they do with an order is
            not known or depends on it; ``output`` and inputs are not among them.
        passes: forward passes over a few samples that finding and trying took.
    """

    groups: Mapping[str, int]
    axes: Mapping[str, tuple[Axis, ...]]
    pinned: tuple[str, ...]
    passes: int

    def identity(self) -> dict[str, Tensor]:
        """Return the permutations that change nothing."""
        return {name: torch.arange(size) for name, size in self.groups.items()}

    def without(self, tensors: Mapping[str, Tensor]) -> "Symmetry":
        """Return the permutations that leave these tensors of a state as they are: frozen ones, say.

        Raises:
            UserError: none are left.
        """
        axes = [
            axis
            for name, tensor in tensors.items()
            for dim, axis in enumerate(self.axes.get(name, ()))
            if not is_constant(tensor, dim)  # any order leaves a constant as it is
        ]
        held = {piece.group for axis in axes for piece in axis if piece.movable}
        every = enumerate(self.groups.items())
        groups = {place: one for place, one in every if place not in held}
        if not groups:
            raise UserError(
                "all channels belong to a frozen parameter or a buffer that must stay as it is; there is "
                "nothing to match"
            )
        numbers = {group: place for place, group in enumerate(groups)}
        moved = {name: tuple(_renumbered(axis, numbers) for axis in own) for name, own in self.axes.items()}
        return replace(self, groups=dict(groups.values()), axes=moved)

    def random(
        self, generator: torch.Generator | None = None, *, seed: int | None = None
    ) -> dict[str, Tensor]:
        """Return a permutation of each group, all equally likely.

        Args:
            generator: draws them.
            seed: of such a generator instead; 0 if neither is given.
        """
        own = generator_of(generator, seed)
        return {name: torch.randperm(size, generator=own) for name, size in self.groups.items()}

    def permuted(self, state: Mapping[str, Tensor], permutations: Permutations) -> dict[str, Tensor]:
        """Return a state of the network whose function is that of ``state``.

        Raises:
            UserError: a tensor is missing or has another shape; a permutation is none.
        """
        rows = self.rows(permutations)
        self.check(state)
        return {name: self.reordered(name, tensor, rows) for name, tensor in state.items()}

    def rows(self, permutations: Permutations) -> list[Tensor]:
        """Return the permutations in the order of the groups.

        Raises:
            UserError: one is missing, or is no permutation.
        """
        for name, size in self.groups.items():
            given = permutations.get(name)
            if given is None or not torch.equal(given.sort().values.cpu(), torch.arange(size)):
                raise UserError(f"the group {name} needs a permutation of 0 to {size - 1}, one of all {size}")
        return [permutations[name].cpu() for name in self.groups]

    def check(self, state: Mapping[str, Tensor]) -> None:
        """Refuse a state of another network.

        Raises:
            UserError: a tensor is missing, is too much, or has another shape.
        """
        for name in {*self.axes, *state}:
            own = tuple(sum(p.length for p in axis) for axis in self.axes.get(name, ()))
            found = tuple(state[name].shape) if name in state else None
            if name not in self.axes or found != own:
                raise UserError(
                    f"{name} is {found or 'missing'} in a state, {own} in the network; match alike ones"
                )

    def reordered(self, name: str, tensor: Tensor, rows: Sequence[Tensor], but: int | None = None) -> Tensor:
        """Return one tensor of a state with its channels permuted, but those of the axis ``but``."""
        for dim, axis in enumerate(self.axes[name]):
            if dim != but and any(piece.movable for piece in axis):
                places = torch.cat(list(_places(axis, rows)))
                tensor = tensor.index_select(dim, places.to(tensor.device))
        return tensor


def _places(axis: Axis, rows: Sequence[Tensor]) -> Any:
    """Yield the old positions of each piece's new ones."""
    begin = 0
    for piece in axis:
        order = rows[piece.group] if piece.movable else torch.arange(piece.length // piece.each)
        yield begin + (order[:, None] * piece.each + torch.arange(piece.each)).reshape(-1)
        begin += piece.length


def permutation_symmetry(model: nn.Module, batches: Data) -> Symmetry:
    """Find the groups of channels of a network, and try that permuting them changes no output.

    Found are permutations of whole channels: of convolutions and linear layers with their biases, of
    BatchNorm, GroupNorm (within its groups) and LayerNorm with all that belongs to them, across skip
    connections and zero-padded shortcuts, through flattening, of depthwise convolutions, of an embedding's
    features. Not found, and left where they are: attention heads, the places of a convolution's groups, what
    an operation does whose effect on channels is not known (``Symmetry.pinned`` names it).

    Args:
        model: any module; copied, never modified.
        batches: the first few samples are used.

    Raises:
        UserError: the network does not run so, nothing in it may be permuted, or a random permutation of all
            groups changes its outputs by more than rounding.
    """
    model = whole_copy(getattr(model, "_orig_mod", model)).cpu().eval().requires_grad_(False)
    kinds = [p.dtype for p in model.parameters() if p.is_floating_point()]
    inputs = next(iter(Batches.of(batches).to("cpu", kinds[0] if kinds else torch.float32)))[0]
    few = some(inputs, slice(SAMPLES))
    try:
        _outputs(model, few)
    except Exception:  # whatever a network raises that takes whole batches only
        few = inputs
    try:
        channels, axes = trace(model, few, RULES)
    except Exception as error:  # whatever the user's network raises
        raise UserError(
            f"the channels of the network cannot be told ({reason(error)}); it must run in eval mode on the "
            "CPU on some of the samples"
        ) from error
    names = _named(axes)
    numbers = {group: place for place, group in enumerate(names)}
    found = Symmetry(
        {name: channels.sizes[group] for group, name in names.items()},
        {name: tuple(_renumbered(axis, numbers) for axis in own) for name, own in axes.items()},
        tuple(sorted(channels.pinned)),
        4,
    )
    if not found.groups:
        why = f": {', '.join(found.pinned)} keep their order" if found.pinned else ""
        raise UserError(f"no channels of the network can be permuted{why}; there is nothing to match")
    _try(model, few, found)
    return found


def _named(axes: Mapping[str, tuple[Axis, ...]]) -> dict[int, str]:
    found: dict[int, str] = {}
    for name, own in axes.items():
        for dim, axis in enumerate(own):
            begin = 0
            for piece in axis:
                whole = len(axis) == 1
                place = "" if whole else f"[{begin}:{begin + piece.length}]"
                if piece.movable and piece.group not in found:
                    found[piece.group] = f"{name}[{dim}]{place}"
                begin += piece.length
    return found


def _renumbered(axis: Axis, numbers: Mapping[int, int]) -> Axis:
    """Return an axis with its groups' new numbers; a group that has none stays where it is."""
    return tuple(Piece(numbers.get(p.group, FIXED), p.length, p.each) if p.movable else p for p in axis)


def _try(model: nn.Module, inputs: Tree, symmetry: Symmetry) -> None:
    """Refuse groups whose permutation changes outputs; in float64 where the network runs so.

    All numbers of the state are moved away from what they are, because fresh normalisation layers have equal
    channels, which any order leaves as they are.
    """
    for dtype in (torch.float64, None):
        own = whole_copy(model).to(dtype)
        samples = mapped(partial(_cast, dtype), inputs)
        state = {name: _moved(tensor, place) for place, (name, tensor) in enumerate(own.state_dict().items())}
        own.load_state_dict(state)
        try:
            before = _outputs(own, samples)
        except RuntimeError:
            if dtype is not None:
                continue  # it casts, or has tensors of its own
            raise
        own.load_state_dict(symmetry.permuted(state, symmetry.random(seed=0)))
        if not close(before, _outputs(own, samples), before.dtype):
            raise UserError(
                "permuting the channels that were found changes the network's outputs: it uses their order "
                "in a way that its operations do not show, so that its weights cannot be matched"
            )
        return


def _cast(dtype: torch.dtype | None, tensor: Tensor) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _moved(tensor: Tensor, seed: int) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    noise = torch.rand(2, *tensor.shape, generator=torch.Generator().manual_seed(seed)).to(tensor.dtype)
    return tensor * (1 + 0.2 * noise[0]) + 0.05 * noise[1]


def _outputs(model: nn.Module, inputs: Tree) -> Tensor:
    positional, named = arguments(cloned(inputs))
    with torch.no_grad(), attention_by_parts():
        return flat(model(*positional, **named))
