"""One colour for each method and those that add to it."""

from collections.abc import Sequence

from fedscope.figures import style
from fedscope.figures.text.labels import family


def colors_by_family(names: Sequence[str]) -> dict[str, tuple[str, style.Color]]:
    """Return for each of ``names`` the one that it adds to, or itself, and the colour of both."""
    bases = [family(name, names) or name for name in names]
    colors = dict(zip(dict.fromkeys(bases), style.method_colors(len(set(bases))), strict=True))
    return {name: (base, colors[base]) for name, base in zip(names, bases, strict=True)}
