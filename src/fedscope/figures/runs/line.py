"""A line of a figure: places, values, and how it is drawn."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One line: (m,) places and values, and where known the half-width of the band around it (m,)."""

    label: str
    x: Values
    y: Values
    band: Values | None = None
    level: bool = False  # a single value, drawn across the axes
    family: str = ""  # lines of one family share a colour; of several the one that is named so is dashed
    shaded: bool = False  # the band, at marked points too, where there are bars without
    points: bool = False  # unconnected, with bars

    def where(self, some: NDArray[np.bool_]) -> "Line":
        """Return the line at some of its places (m,)."""
        band = None if self.band is None else self.band[some]
        return replace(self, x=self.x[some], y=self.y[some], band=band)

    @property
    def connected(self) -> "Line":
        """The line over its finite values, without a gap where one is missing between others."""
        return self.where(np.isfinite(self.y))
