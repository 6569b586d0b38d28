"""The demo's three pictures: where the load was, how it spread over executors, and how the run went.

Each takes a story and returns a figure; `report.py` saves them. The look is that of the benchmarks (`bench/plots.py`).
"""

from typing import TYPE_CHECKING

import numpy as np

from geoswarm.bench.plots import PALETTE, figure
from geoswarm.cli.watch import rates
from geoswarm.demo.story import Story
from geoswarm.jit import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NIGHT, INK, FAINT = "#0b1022", "#e8ecf4", "#8ea0c0"
BLUE, ORANGE, GREEN, RED = PALETTE[:4]
EMBERS = ("#161c3a", "#3b1a6b", "#7d1f78", "#c43a5e", "#f2783a", "#fbc24a", "#fdf7c3")
"""From one event, hardly lighter than the empty map, to the busiest place."""
CELLS_PER_PIXEL = 2
"""Cells of the grid that share a dot of the map, on each side: single cells are too small to see."""


def load_map(story: Story) -> "Figure":
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.patches import Rectangle

    counts, grid = story.events_per_cell(), story.plan.grid
    dots = _coarser(counts, CELLS_PER_PIXEL)
    drawn, (axes,) = figure(width_in=12.0, height_in=6.6)
    drawn.set_facecolor(NIGHT)
    axes.set_facecolor(NIGHT)
    image = axes.imshow(
        np.ma.masked_less_equal(dots, 0),
        extent=(grid.xmin, grid.xmax, grid.ymin, grid.ymax),
        norm=LogNorm(vmin=1, vmax=max(float(dots.max()), 10.0)),
        cmap=LinearSegmentedColormap.from_list("night", EMBERS),
        interpolation="nearest",
        aspect="auto",
    )
    cell_x, cell_y = (grid.xmax - grid.xmin) / grid.columns, (grid.ymax - grid.ymin) / grid.rows
    shares = story.cpu_s / max(float(story.cpu_s.sum()), 1e-12)
    mean = 1 / len(shares)
    for part in story.plan.partitions:
        left, top = grid.xmin + part.col0 * cell_x, grid.ymax - part.row0 * cell_y
        wide, high = (part.col1 - part.col0 + 1) * cell_x, (part.row1 - part.row0 + 1) * cell_y
        busy = shares[part.executor] > 2 * mean
        axes.add_patch(
            Rectangle((left, top - high), wide, high, fill=False, edgecolor="#4fc3d9", linewidth=0.9, alpha=0.8)
        )
        say = (
            f"{part.executor} · {shares[part.executor]:.0%}"
            if shares[part.executor] >= 0.005
            else f"{part.executor} · <1%"
        )
        axes.annotate(
            say,
            (left, top),
            (5, -5),
            textcoords="offset points",
            ha="left",
            va="top",
            fontsize=11 if busy else 9.5,
            color="white" if busy else FAINT,
            fontweight="bold" if busy else "normal",
            bbox={
                "boxstyle": "round,pad=0.25",
                "facecolor": RED if busy else NIGHT,
                "edgecolor": "none",
                "alpha": 0.85,
            },
        )
    axes.set(xlim=(grid.xmin, grid.xmax), ylim=(grid.ymin, grid.ymax), xlabel="longitude", ylabel="latitude")
    axes.set_title(
        f"Where the load was: {story.totals.events:,} events, {story.contract.executors} executors", color=INK
    )
    axes.grid(visible=False)
    axes.tick_params(colors=FAINT)
    axes.xaxis.label.set_color(FAINT)
    axes.yaxis.label.set_color(FAINT)
    for spine in axes.spines.values():
        spine.set_color("#2a3554")
    bar = drawn.colorbar(image, ax=axes, pad=0.01, aspect=35)
    bar.set_label("events per half degree (log scale)", color=FAINT)
    bar.ax.tick_params(colors=FAINT)
    bar.outline.set_edgecolor("#2a3554")
    axes.set(xticks=range(-180, 181, 45), yticks=range(-90, 91, 30))
    said = "executor · share of the matching CPU"
    axes.set_title(said, loc="right", color=FAINT, fontsize=11, fontweight="normal")
    return drawn


def executors(story: Story) -> "Figure":
    cpu = story.cpu_s / max(float(story.cpu_s.sum()), 1e-12)
    events = story.events_by_executor / max(int(story.events_by_executor.sum()), 1)
    order = np.argsort(-cpu, kind="stable")
    drawn, (bars, curve) = figure(2, width_in=6.6, height_in=4.4)
    places, mean = np.arange(len(order)), 1 / len(order)
    colours = [RED if cpu[i] > 2 * mean else ORANGE if cpu[i] > mean else BLUE for i in order]
    bars.bar(places, cpu[order] * 100, color=colours, width=0.75, label="CPU")
    bars.plot(places, events[order] * 100, "D", color="#333333", markersize=5, label="events")
    bars.axhline(mean * 100, color="#333333", linestyle="--", linewidth=1.2)
    bars.text(len(order) - 0.4, mean * 100, "balance ", ha="right", va="bottom", fontsize=10.5, color="#333333")
    bars.annotate(
        f"max / mean = {story.skew:.1f}",
        (0, cpu[order[0]] * 100),
        (14, -4),
        textcoords="offset points",
        va="top",
        fontsize=13,
        fontweight="bold",
    )
    bars.set(xticks=places, xticklabels=[str(i) for i in order], xlabel="executor, busiest first", ylabel="share (%)")
    bars.set_title("Share of the work")
    bars.grid(axis="x", visible=False)
    bars.legend(loc="upper right")
    rising = np.concatenate([[0.0], np.cumsum(np.sort(cpu))]) * 100
    part = np.linspace(0, 100, len(rising))
    curve.plot([0, 100], [0, 100], "--", color="#333333", linewidth=1.2, marker="", label="balance")
    curve.plot(part, rising, color=RED, marker="o", markersize=4, label="this run")
    curve.fill_between(part, part, rising, color=RED, alpha=0.12)
    curve.set(xlabel="executors, idlest first (%)", ylabel="their share of the CPU (%)", xlim=(0, 100), ylim=(0, 100))
    curve.set_title("Lorenz curve")
    curve.legend(loc="upper left")
    return drawn


def timeline(story: Story) -> "Figure":
    began_us = story.warm[0]["now_us"]
    ends_s = [(batch["now_us"] - began_us) / 1e6 + batch["batch_s"] for batch in story.warm]
    drawn, (speed, length) = figure(2, width_in=6.6, height_in=3.6)
    speed.plot(ends_s, [rates([batch])[0] / 1e3 for batch in story.warm], color=BLUE, marker="o", markersize=3.5)
    speed.set(xlabel="seconds since the first batch", ylabel="thousand events/s")
    speed.set_title("Throughput by batch")
    length.plot(ends_s, [batch["batch_s"] for batch in story.warm], color=GREEN, marker="s", markersize=3.5)
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
