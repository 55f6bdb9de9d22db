"""A function of tensors as the list of its operations, without the time that Python takes to find them.

``vmap(grad(f))`` decides anew in every call which operations to run: a millisecond, most of a step of fifty
small clients. For one set of shapes they are always the same.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves, tree_map

Function = Callable[..., Any]
MOST = 32  # sets of shapes that are traced, each in a tenth of a second: the first, others run as they are


class Traced:
    """Calls ``function``: traced once for each set of shapes, and from then on replayed, with the same bits.

    The function reads its arguments, which it may change, and otherwise only what stays as it is.
    """

    def __init__(self, function: Function):
        self._function = function
        self._graphs: dict[tuple[object, ...], GraphModule] = {}

    def __call__(self, *args: Any) -> Any:
        key = tuple((leaf.shape, leaf.stride()) for leaf in tree_leaves(args))
        if key not in self._graphs:
            if len(self._graphs) == MOST:
                return self._function(*args)
            self._graphs[key] = self._trace(args)
        return self._graphs[key](*args)

    def _trace(self, args: tuple[Any, ...]) -> GraphModule:
        from torch.fx.experimental.proxy_tensor import make_fx  # loads SymPy

        copies = tree_map(Tensor.clone, args)  # the function may change them
        traced: GraphModule = make_fx(self._function)(*copies)
        return traced
