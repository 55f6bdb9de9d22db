"""The facets of a surface in space, with holes at missing points and a clean cut at a ceiling."""

import numpy as np
from numpy.typing import NDArray

Polygon = NDArray[np.float64]  # (vertices, 3)


def facets(
    x: NDArray[np.float64], y: NDArray[np.float64], height: NDArray[np.float64], *, ceiling: float
) -> list[Polygon]:
    """Return the grid's quadrilaterals, each cut where it rises above ``ceiling``.

    ``x`` is (m₀,), ``y`` (m₁,), ``height`` (m₀, m₁). A quadrilateral with a corner that is not finite is
    left out, as is one that lies above the ceiling altogether.
    """
    points = np.stack([*np.meshgrid(x, y, indexing="ij"), height], axis=-1)
    corners = np.stack([points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]], axis=2)
    quads = corners.reshape(-1, 4, 3)
    quads = quads[np.isfinite(quads).all(axis=(1, 2))]
    below = (quads[:, :, 2] <= ceiling).sum(axis=1)
    whole = list(quads[below == 4])
    return whole + [_cut(quad, ceiling) for quad in quads[(below > 0) & (below < 4)]]


def _cut(polygon: Polygon, ceiling: float) -> Polygon:
    """Keep the part under the plane (Sutherland and Hodgman's clipping, one plane)."""
    kept = []
    for start, end in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if start[2] <= ceiling:
            kept.append(start)
        if (start[2] <= ceiling) != (end[2] <= ceiling):
            kept.append(start + (ceiling - start[2]) / (end[2] - start[2]) * (end - start))
    return np.array(kept)
