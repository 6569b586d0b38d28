"""The demo's pictures: the plan over the load, the balance batch by batch, the executors, and how the run went.

Each takes a story and returns a figure; `report.py` saves them. The look is that of the benchmarks
(`lab/bench/kit/plots.py`).
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from geoswarm.core.arrays.jit import Floats
from geoswarm.core.space.plan import Plan
from geoswarm.lab.bench.kit.plots import PALETTE, figure
from geoswarm.lab.demo.story import Story
from geoswarm.service.watch import rates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NIGHT, INK, FAINT = "#0b1022", "#e8ecf4", "#8ea0c0"
CALM = "#4fc3d9"
BLUE, ORANGE, GREEN, RED = PALETTE[:4]
EMBERS = ("#161c3a", "#3b1a6b", "#7d1f78", "#c43a5e", "#f2783a", "#fbc24a", "#fdf7c3")
"""Colours from one event, hardly lighter than the empty map, to the busiest place."""
CELLS_PER_PIXEL = 2
"""Cells of the grid that share a dot of the map, on each side: single cells are too small to see."""


SOUTH, NORTH = -58, 78
"""No post comes from beyond these latitudes."""
LABEL_CELLS = 45, 30
"""Columns and rows that a partition needs for its executor's number to fit in."""


def load_map(story: Story) -> "Figure":
    """Two maps: the first plan of the run above, the last one below, each over the events of its time."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(12.0, 10.0), layout="constrained", facecolor=NIGHT)
    FigureCanvasAgg(drawn)
    above, below = drawn.subplots(2, 1, sharex=True)
    begun, ended = story.plans[0], story.plans[-1]
    late = story.last
    early = list(range(len(late)))
    dots = [_coarser(story.events_per_cell(batches), CELLS_PER_PIXEL) for batches in (early, late)]
    most = max(float(each.max()) for each in dots)
    of_last_plan = [i for i, plan in enumerate(story.plans) if plan.epoch == ended.epoch]
    _map(above, dots[0], most, begun, story.shares(story.first))
    image = _map(below, dots[1], most, ended, story.shares(of_last_plan))
    for axes, batches, plan, skew in ((above, early, begun, story.skew_first), (below, late, ended, story.skew_last)):
        when = "–".join(story.stream_time(story.events_until(i)) for i in (batches[0], batches[-1] + 1))
        axes.set_title(f"Plan {plan.epoch}: {len(plan.partitions)} partitions, {when} UTC", color=INK)
        title = f"busiest executor {skew:.1f} × the mean"
        if plan.epoch != begun.epoch:
            title += f" ({story.skew_kept:.1f} × by plan {begun.epoch})"
        axes.set_title(title, loc="right", color=INK, fontsize=13, fontweight="normal")
    below.set_xlabel(
        "in each part: its executor · that one's CPU over the mean; red above 2, orange above 1.5", color=FAINT
    )
    bar = drawn.colorbar(image, ax=[above, below], pad=0.01, aspect=60)
    bar.set_label("events per half degree (log scale)", color=FAINT)
    bar.ax.tick_params(colors=FAINT)
    bar.outline.set_edgecolor("#2a3554")
    return drawn


def _map(axes: "Axes", dots: Floats, most: float, plan: Plan, shares: Floats) -> Any:
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.patches import Rectangle

    grid = plan.grid
    image = axes.imshow(
        np.ma.masked_less_equal(dots, 0),
        extent=(grid.xmin, grid.xmax, grid.ymin, grid.ymax),
        norm=LogNorm(vmin=1, vmax=max(most, 10.0)),
        cmap=LinearSegmentedColormap.from_list("night", EMBERS),
        interpolation="nearest",
        aspect="auto",
    )
    cell_x, cell_y = (grid.xmax - grid.xmin) / grid.columns, (grid.ymax - grid.ymin) / grid.rows
    for part in plan.partitions:
        left, top = grid.xmin + part.col0 * cell_x, grid.ymax - part.row0 * cell_y
        wide, high = (part.col1 - part.col0 + 1) * cell_x, (part.row1 - part.row0 + 1) * cell_y
        times = float(shares[part.executor]) * len(shares)
        colour = RED if times > 2 else ORANGE if times > 1.5 else CALM
        axes.add_patch(Rectangle((left, top - high), wide, high, fill=False, edgecolor=CALM, linewidth=0.8, alpha=0.9))
        if colour != CALM:
            axes.add_patch(Rectangle((left, top - high), wide, high, color=colour, linewidth=0, alpha=0.22))
        if wide / cell_x < LABEL_CELLS[0] or high / cell_y < LABEL_CELLS[1]:
            continue
        axes.annotate(
            f"{part.executor} · {times:.1f}×" if wide / cell_x > 2 * LABEL_CELLS[0] else f"{part.executor}",
            (left, min(top, NORTH)),
            (4, -4),
            textcoords="offset points",
            ha="left",
            va="top",
            fontsize=9.5,
            color="white" if colour != CALM else FAINT,
            fontweight="bold" if colour != CALM else "normal",
            bbox={"boxstyle": "round,pad=0.2", "facecolor": NIGHT, "edgecolor": "none", "alpha": 0.6},
        )
    axes.set(xlim=(grid.xmin, grid.xmax), ylim=(SOUTH, NORTH), xticks=[], yticks=[], facecolor=NIGHT)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_color("#2a3554")
    return image


def balance(story: Story) -> "Figure":
    from matplotlib.ticker import MaxNLocator

    begin = len(story.batches) - len(story.warm)
    numbers = [batch.batch for batch in story.warm]
    drawn, (axes,) = figure(width_in=12.0, height_in=4.2)
    epochs = [plan.epoch for plan in story.plans[begin:]]
    changed = [i for i in range(1, len(epochs)) if epochs[i] != epochs[i - 1]]
    for i in changed:
        axes.axvline(numbers[i] - 0.5, color="#999999", linewidth=1.0, linestyle=":", zorder=1)
    if changed:
        axes.plot([], [], color="#999999", linewidth=1.0, linestyle=":", marker="", label="a new plan")
        label = "had the first plan been kept"
        axes.plot(numbers, story.skews_kept[begin:], color=RED, linestyle="--", marker="", label=label)
    axes.plot(numbers, story.skews[begin:], color=BLUE, marker="o", markersize=5, label="as it was")
    axes.axhline(1, color="#333333", linewidth=1.2)
    axes.annotate(
        "balance",
        (1, 1),
        (-4, -5),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va="top",
    )
    axes.set(xlabel="batch", ylabel="busiest executor / mean")
    axes.set_ylim(bottom=0)
    axes.set_title("Balance, batch by batch")
    drawn.legend(loc="outside lower center", ncols=3)
    axes.grid(axis="x", visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return drawn


def executors(story: Story) -> "Figure":
    """The load of executors under the first and the last plan, by rank: another one is the busiest in every batch."""
    from matplotlib.ticker import MaxNLocator

    drawn, (bars, curve) = figure(2, width_in=6.6, height_in=4.4)
    first, last = (
        np.mean([np.sort(story.shares([i]))[::-1] for i in batches], axis=0) * 100
        for batches in (story.first, story.last)
    )
    ranks, mean = np.arange(len(first)) + 1, 100 / len(first)
    bars.bar(ranks - 0.2, first, color=RED, width=0.4, label="first plan")
    bars.bar(ranks + 0.2, last, color=BLUE, width=0.4, label=story.last_said)
    bars.axhline(mean, color="#333333", linestyle="--", linewidth=1.2, label="balance")
    bars.set(xlabel="executors, busiest first", ylabel="share of the CPU (%)", xlim=(0.3, len(first) + 0.7))
    bars.set_title("Share of the work")
    bars.grid(axis="x", visible=False)
    bars.xaxis.set_major_locator(MaxNLocator(integer=True))
    bars.legend(loc="upper right")
    part = np.linspace(0, 100, len(first) + 1)
    curve.plot([0, 100], [0, 100], "--", color="#333333", linewidth=1.2, marker="", label="balance")
    for shares, colour, marker, label in ((last, BLUE, "o", story.last_said), (first, RED, "s", "first plan")):
        rising = np.concatenate([[0.0], np.cumsum(shares[::-1])])
        curve.plot(part, rising, color=colour, marker=marker, markersize=4, label=label)
    curve.set(xlabel="executors, idlest first (%)", ylabel="their share of the CPU (%)", xlim=(0, 100), ylim=(0, 100))
    curve.set_title("Lorenz curve")
    curve.legend(loc="upper left")
    return drawn


def timeline(story: Story) -> "Figure":
    began_us = story.warm[0].now_us
    ends_s = [(batch.now_us - began_us) / 1e6 + batch.batch_s for batch in story.warm]
    drawn, (speed, length) = figure(2, width_in=6.6, height_in=3.6)
    speed.plot(ends_s, [rates([batch])[0] / 1e3 for batch in story.warm], color=BLUE, marker="o", markersize=3.5)
    speed.set(xlabel="seconds since the first batch", ylabel="thousand events/s")
    speed.set_title("Throughput by batch")
    length.plot(ends_s, [batch.batch_s for batch in story.warm], color=GREEN, marker="s", markersize=3.5)
    length.axhline(story.batch_s_p50, color="#333333", linestyle="--", linewidth=1.2)
    length.annotate(
        f"median {story.batch_s_p50:.2f} s",
        (1, story.batch_s_p50),
        (-4, 4),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        fontsize=11,
    )
    length.set(xlabel="seconds since the first batch", ylabel="seconds per batch")
    length.set_title("Latency of a batch")
    for axes in (speed, length):
        axes.set_ylim(bottom=0)
        axes.set_xlim(left=0)
    return drawn


def _coarser(counts: Floats, by: int) -> Floats:
    rows, columns = (size // by * by for size in counts.shape)
    blocks = counts[:rows, :columns].reshape(rows // by, by, columns // by, by)
    return np.asarray(blocks.sum(axis=(1, 3)), np.float64)
