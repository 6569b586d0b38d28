"""The look of every figure: readable at half size, light grid, colours that colour-blind readers can distinguish.

Draws nothing by itself: a benchmark's `plot(result)` starts from `figure()`, and the harness calls it within
`style()`. Matplotlib is imported on first use, so that listing benchmarks stays quick.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#7F7F7F", "#000000")
"""Okabe and Ito's colours, the yellow left out: it is lost on white."""

ROW_IN_MAX = 20.0
"""Inches of a row of panels: a wider figure cannot be read on a page."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Colour is never the only difference."""

STYLE: Any = {
    "font.size": 12,
    "axes.titlesize": 14,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "figure.dpi": 100,
    "savefig.dpi": 150,
}


@contextmanager
def style() -> Iterator[None]:
    import matplotlib as mpl
    from cycler import cycler

    look = STYLE | {"axes.prop_cycle": cycler(color=PALETTE) + cycler(marker=MARKERS)}
    with mpl.rc_context(look):
        yield


def figure(panels: int = 1, *, width_in: float = 7.0, height_in: float = 4.2) -> "tuple[Figure, list[Axes]]":
    """A figure with its panels side by side, in rows of at most `ROW_IN_MAX`; each is as wide and high as given."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = math.ceil(width_in * panels / ROW_IN_MAX)
    columns = math.ceil(panels / rows)
    drawn = Figure(figsize=(width_in * columns, height_in * rows), layout="constrained")
    FigureCanvasAgg(drawn)  # never a window, whatever the machine's default backend
    return drawn, [drawn.add_subplot(rows, columns, i + 1) for i in range(panels)]
