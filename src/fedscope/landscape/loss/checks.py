"""What is checked before the first product, on a few samples: that the products will mean what they say.

The network must give the same outputs twice, every operation must have a second derivative, and the products
must be those of a symmetric matrix. What fails is named: the operation and the module it is in.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.utils.hooks import RemovableHandle

from fedscope.errors import UserError
from fedscope.landscape.loss.recomputed.logits import Logits
from fedscope.landscape.loss.trees import within
from fedscope.streams import random_signs

_MENDS = {  # by what PyTorch's message says
    "use_reentrant": "call torch.utils.checkpoint.checkpoint with use_reentrant=False",
    "embedding_bag": "use nn.Embedding and take the mean or sum of what it returns",
    "attention": 'build the network with attn_implementation="eager", or write the attention out',
}


_ROUNDINGS = 32  # of the outputs, that a loss may differ by


def close(first: Tensor, second: Tensor, dtype: torch.dtype, *, beside: float = 0) -> bool:
    """Say whether results computed in ``dtype`` differ by rounding only, beside the largest finite one.

    ``beside``: the size of the outputs that losses were computed from; the losses may also differ by some
    roundings of it, which is more where small losses come from large outputs.
    """
    if not first.numel() or first.shape != second.shape:
        return first.shape == second.shape
    room = slack(dtype) * float(first.nan_to_num(0, 0, 0).abs().max())
    room += _ROUNDINGS * torch.finfo(dtype).eps * beside
    return torch.allclose(first, second, rtol=0, atol=room, equal_nan=True)


def largest(outputs: object) -> float:
    found = [t for t in within(outputs) if t.is_floating_point() and t.numel()]
    return max(map(_largest, found), default=0.0)


def _largest(tensor: Tensor) -> float:
    if isinstance(tensor, Logits):
        return tensor.largest()
    return float(tensor.detach().nan_to_num(0, 0, 0).abs().max())


def check_repeats(evaluate: Callable[[], Tensor]) -> None:
    with torch.no_grad():
        first, second = evaluate(), evaluate()
    if not close(first, second, first.dtype):
        raise UserError(
            "the model gives different outputs on the same samples, so that there is no one loss to measure: "
            "remove the randomness, or the state, that its forward keeps in eval mode"
        )


def check_symmetric(times: Callable[[Tensor], Tensor], like: Tensor, said: str) -> None:
    """Refuse products with uᵀAv ≠ vᵀAu, by far more than rounding, for two random sign vectors."""
    u, v = random_signs((2, len(like)), torch.Generator().manual_seed(0), like.dtype).to(like.device)
    Au, Av = times(u).double(), times(v).double()
    # For signs uᵀe is about ‖e‖ for an error e of Av: rounding gives some ε·‖Av‖, a wrong derivative ‖Av‖.
    defect, scale = float(abs(u.double() @ Av - v.double() @ Au)), float(Au.norm() + Av.norm())
    if defect > slack(like.dtype) * scale:
        raise UserError(
            f"{said}, which is not symmetric (uᵀAv and vᵀAu differ by {defect:.1e} where ‖Au‖ + ‖Av‖ is "
            f"{scale:.1e}) and has no eigenvalues: take that step out of the network"
        )


def once_differentiable(gradients: Iterable[Tensor]) -> bool:
    """Say whether the graph of gradients has a function that forbids a second derivative.

    ``autograd.grad`` does not visit the node that would raise, and returns a product without that term.
    """
    known: set[Node] = set()
    for gradient in gradients:
        known |= _graph(gradient.grad_fn, known)
    return any(node.name() == "torch::autograd::Error" for node in known)


@contextmanager
def explained(model: nn.Module, evaluate: Callable[[], Tensor], otherwise: str = "") -> Iterator[None]:
    """Turn PyTorch's errors about missing derivatives into ones that name the operation and the module."""
    try:
        yield
    except (RuntimeError, TypeError) as error:
        if branched := _place(model, evaluate, "CondAutogradOp"):
            raise UserError(
                f"torch.cond has no second derivative{branched}; write the branch as a Python if, or with "
                f"torch.where{otherwise}"
            ) from error
        said = str(error)
        if not any(text in said for text in ("derivative", "double backward", "use_reentrant")):
            raise
        found = re.search(r"derivative for '?(?:\w+::)?(\w+)", said)
        where = _place(model, evaluate, found[1]) if found else ""
        mend = next((mend for text, mend in _MENDS.items() if text in said), "replace it")
        raise UserError(
            f"an operation of the model has no second derivative{where}; {mend}{otherwise} "
            f"({said.splitlines()[0]})"
        ) from error


def once_error(model: nn.Module, evaluate: Callable[[], Tensor], otherwise: str = "") -> UserError:
    where = _place(model, evaluate, None)
    return UserError(
        f"an autograd.Function of the model is marked once_differentiable{where}; replace it{otherwise}"
    )


def _place(model: nn.Module, evaluate: Callable[[], Tensor], operation: str | None) -> str:
    """Return ': X in module m' for the first node that is ``operation``, or is once differentiable."""
    wanted = None if operation is None else _bare(operation)
    for node, place in _owners(model, evaluate).items():
        if _is_once(node) if wanted is None else _bare(node.name()) == wanted:
            return f": {node.name()} in {place}"
    return ""


def functions_of(model: nn.Module, evaluate: Callable[[], Tensor]) -> list[tuple[str, str]]:
    """Return each ``autograd.Function`` that a loss depends on, and where it is called."""
    nodes = ((node.name(), place) for node, place in _owners(model, evaluate).items() if _function(node))
    return sorted({(name.removesuffix("Backward"), place) for name, place in nodes})


def _function(node: Node) -> type | None:
    return getattr(node, "_forward_cls", None)


def _bare(name: str) -> str:
    """Return what an operation, its backward and its node have in common."""
    return re.sub(r"(_?backward\d*)*$", "", name.lower().rsplit("::", 1)[-1]).replace("_", "")


def _is_once(node: Node) -> bool:
    return hasattr(getattr(_function(node), "backward", None), "__wrapped__")


def _owners(model: nn.Module, evaluate: Callable[[], Tensor]) -> dict[Node, str]:
    """Return where each node that a loss depends on is made: in which innermost module, or in the loss."""
    owners: dict[Node, str] = {}
    open_modules: list[str] = ["the loss"]

    def claim(value: object, name: str) -> None:
        for tensor in value if isinstance(value, tuple | list) else (value,):
            if isinstance(tensor, Tensor):
                owners.update(dict.fromkeys(_graph(tensor.grad_fn, set(owners)), name))

    def enter(name: str, args: tuple[object, ...]) -> None:
        claim(args, open_modules[-1])
        open_modules.append(name)

    def leave(output: object) -> None:
        claim(output, open_modules.pop())

    handles: list[RemovableHandle] = []
    for name, module in model.named_modules():
        place = f"module {name!r}" if name else "the network itself"
        handles.append(module.register_forward_pre_hook(lambda _, args, place=place: enter(place, args)))
        handles.append(module.register_forward_hook(lambda _, args, output: leave(output)))
    try:
        with torch.enable_grad():
            claim(evaluate(), open_modules[0])
    finally:
        for handle in handles:
            handle.remove()
    return owners


def _graph(root: Node | None, known: set[Node]) -> set[Node]:
    """Return the nodes that ``root`` depends on, itself included, without looking beyond the known ones."""
    found: set[Node] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found and node not in known:
            found.add(node)
            waiting += [parent for parent, _ in node.next_functions]
    return found


def saved_tensors(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield what PyTorch's own nodes of the tensors' graphs keep, once or several times."""
    known: set[Node] = set()
    for tensor in tensors:
        known |= _graph(tensor.grad_fn, known)
    for node in known:
        for name in dir(node):
            if name.startswith("_saved_") and isinstance(kept := getattr(node, name), Tensor):
                yield kept


def slack(dtype: torch.dtype) -> float:
    """Return what passes for rounding in a result of many operations: 7e-5 in float32, 4e-10 in float64."""
    return float(torch.finfo(dtype).eps ** 0.6)


def rounding(dtype: torch.dtype) -> float:
    """Return what two means of the same samples' losses may differ by, relative: 1e-5 in float32."""
    return max(1e-5, 4 * torch.finfo(dtype).eps)


def check_closed(loss: Tensor, own: Sequence[Tensor]) -> None:
    """Refuse a loss of other parameters than the network's, such as the original's: constants to its copy."""
    known = {id(parameter) for parameter in own}
    for node in _graph(loss.grad_fn, set()):
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, nn.Parameter) and id(leaf) not in known:
            raise UserError(
                f"the loss depends on a parameter {tuple(leaf.shape)} outside the network that is measured, "
                "which would count as a constant; detach() it if that is meant. Weight decay, λ/2·‖w‖², adds "
                "λ to every eigenvalue: leave it out of the loss"
            )
