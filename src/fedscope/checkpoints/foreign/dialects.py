"""The names that published code gives to the tensors of the catalogue's networks.

A dialect is a list of rules that turn a name here into the name there. The residual networks of FedML,
FedAlign and torchvision share one (``conv1``, ``bn1``, ``layer1.0.conv1``, ``downsample``); the CIFAR
networks that follow K. Liu's have ``shortcut`` and ``linear``. FedAlign's slimmable networks keep a layer's
running statistics in a nested BatchNorm without parameters. MOON's projection has had several names.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import product

Rules = tuple[tuple[str, str], ...]

_LAYERS = {0: "conv1", 1: "bn1", 3: "conv2", 4: "bn2", 6: "conv3", 7: "bn3"}  # of a block's branch
_BLOCK: Rules = (
    (r"^stem\.0\.", "conv1."),
    (r"^stem\.1\.", "bn1."),
    *((rf"^(layer\d+\.\d+)\.branch\.{place}\.", rf"\1.{name}.") for place, name in _LAYERS.items()),
)
_BODIES: dict[str, Rules] = {
    "": (),
    "residual": (*_BLOCK, (r"\.shortcut\.", ".downsample.")),
    "residual, K. Liu's": (*_BLOCK, (r"^fc\.", "linear.")),
    "FedBN's AlexNet": (
        (r"^((?:conv|bn)[1-5]\.)", r"features.\1"),
        (r"^((?:fc|bn[67]).*)", r"classifier.\1"),
    ),
}
_STATISTICS = r"\.(running_mean|running_var|num_batches_tracked)$"
_NORMS: dict[str, Rules] = {
    "": (),
    "slimmable": ((_STATISTICS, r".bn.\1"),),
    "slimmable, listed": ((_STATISTICS, r".bn.0.\1"),),
}


def _head(first: str, second: str, last: str = "fc") -> Rules:
    return ((r"^head\.0\.", f"{first}."), (r"^head\.2\.", f"{second}."), (r"^(?:fc|linear)\.", f"{last}."))


_HEADS: dict[str, Rules] = {
    "": (),
    "projection p1, p2": _head("p1", "p2"),
    "projection l1, l2, l3": _head("l1", "l2", "l3"),
    "projection l1, l2": _head("l1", "l2"),
    "projection_head": _head("projection_head.0", "projection_head.2"),
}


def translations(names: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (dialect, {name here: name there}), the names as they are first, and no translation twice."""
    names, seen = list(names), set[tuple[str, ...]]()
    heads = _HEADS if any(name.startswith("head.") for name in names) else {"": ()}
    for (body, rules), (norm, nested), (head, projection) in product(
        _BODIES.items(), _NORMS.items(), heads.items()
    ):
        foreign = tuple(_translated(names, (*rules, *nested, *projection)))
        if foreign not in seen:
            seen.add(foreign)
            yield ", ".join(filter(None, (body, norm, head))), dict(zip(names, foreign, strict=True))


def _translated(names: Iterable[str], rules: Rules) -> list[str]:
    for pattern, replacement in rules:
        rule = re.compile(pattern)
        names = [rule.sub(replacement, name) for name in names]
    return list(names)
