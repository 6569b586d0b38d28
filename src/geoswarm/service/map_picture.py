"""A picture of what happened: subscriptions as fences, kept events as the ways of objects, and alerts over them.

It is drawn from what is there: fences and events from a checkpoint, alerts from what a sink has written. There are no
streets below it; for those, `geoswarm export` and `geoswarm query --format geojson` go into any map.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely
from pyarrow import json as json_lines

from geoswarm.core.shapes.circle import EARTH_M, is_degrees
from geoswarm.core.space.grid import Grid
from geoswarm.errors import InputError, SettingsError
from geoswarm.flow.recall import join_tables
from geoswarm.model import ALERT_KINDS, OBJECT, OF_ENDED, TRANSITION
from geoswarm.run.collection import Subscriptions
from geoswarm.run.parquet_rolls import read_folder
from geoswarm.run.past import Past
from geoswarm.service.subscriptions import feature_of
from geoswarm.store.founding import open_checkpoint
from geoswarm.store.kept.summary import kept_status
from geoswarm.store.region_files import RADIUS
from geoswarm.store.storage import Storage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rectangle = tuple[float, float, float, float]

FENCES_MAX = 2_000
"""More cannot be told apart in a picture."""
EVENTS_MAX = 100_000
"""The newest, with a rectangle of those in it and of those around it; matplotlib takes a second for so many."""
NAMES_MAX = 25
"""Fences, or objects, that are named; the names of more would lie upon each other."""
WIDTH_IN = 10.0
MARGIN = 0.06
"""Of the width and height, round what is drawn."""
LEGEND_COLUMNS_MAX = 7
LEGEND_FRAME = 0.013
"""Of the width: a frame that is not drawn."""
MARGIN_MIN_DEGREES, MARGIN_MIN_M = 1e-4, 10.0
"""Round what is a single point; the one is about as long as the other."""

WAYS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D31", "#6B6ECF")
"""Okabe and Ito's colours without yellow and black, and two more: of as many objects, which then begin again."""
MARKS: Mapping[str, tuple[str, str, str]] = {
    "initial": ("P", "#1F5FA8", "is inside already"),
    "inside": ("o", "#777777", "inside"),
    "enter": ("^", "#00804F", "enters"),
    "exit": ("v", "#C8102E", "leaves"),
    "dwell": ("s", "#6A3D9A", "has stayed"),
    "cross": ("X", "#111111", "passes through"),
    "ended": ("D", "#8A5A00", "falls silent"),
}
"""The marker, the colour and the words of what an alert is of: colour is never the only difference.
Of `ended` only those about objects that fell silent have a place."""


class Drawn(NamedTuple):
    """What a picture shows."""

    fences: list[dict[str, Any]]
    """Features of GeoJSON."""
    events: pa.Table | None
    """None: nothing is kept."""
    alerts: pa.Table | None
    in_degrees: bool = True
    """False: in metres, or whatever else the bounds are in."""
    left_out: str = ""
    """What is said of events that are too many to be drawn; empty: none are."""


def read_alerts(path: Path) -> pa.Table:
    """Rows that a sink wrote: a Parquet folder, or a file of JSON lines, such as a topic that was printed."""
    if not path.exists():
        raise InputError(
            f"there is no {path} to read alerts from: give the folder of the sink, or a file of JSON lines"
        )
    try:
        rows = _with_places(read_folder(path) if path.is_dir() else json_lines.read_json(path))
    except pa.ArrowInvalid as why:
        raise InputError(f"{path} cannot be read as JSON lines ({str(why).splitlines()[0]}): write it again") from why
    lacking = [name for name in ("x", "y", TRANSITION.name) if name not in rows.schema.names]
    if len(rows) and lacking:
        raise InputError(f'{path} has no column {", ".join(lacking)}: set [tuning] matches = "alerts"')
    return rows


def _with_places(rows: pa.Table) -> pa.Table:
    """With x and y as numbers. JSON has whole ones, and leaves out what is null, which may be all: the last alert of a
    subscription has no place."""
    only_ends = TRANSITION.name in rows.schema.names
    only_ends = only_ends and pc.unique(rows[TRANSITION.name]).to_pylist() == [ALERT_KINDS[OF_ENDED]]
    for axis in ("x", "y"):
        if axis in rows.schema.names:
            rows = rows.set_column(rows.schema.get_field_index(axis), axis, rows[axis].cast(pa.float64()))
        elif only_ends:
            rows = rows.append_column(axis, pa.nulls(len(rows), pa.float64()))
    return rows


def gather(storage: Storage, alerts: Path | None, rectangle: Rectangle | None, where: str | None) -> Drawn:
    """Fences and kept events of a rectangle or of the world; `where` is a condition on the events."""
    page = Subscriptions(storage).page(rectangle, limit=FENCES_MAX)
    keeps = kept_status(storage) is not None
    if where is not None and not keeps:
        raise SettingsError('--where chooses among kept events, and none are kept: set [window] keep = "1 hour"')
    grid = Grid.of(open_checkpoint(storage)[1])
    events, left_out = _kept_events(Past(storage), grid, rectangle, where) if keeps else (None, "")
    rows = None if alerts is None else read_alerts(alerts)
    if rectangle is not None:
        rows = rows if rows is None or not len(rows) else rows.filter(_inside(rows, rectangle))
    return Drawn([feature_of(row) for row in page.to_pylist()], events, rows, is_degrees(grid), left_out)


def _kept_events(past: Past, grid: Grid, rectangle: Rectangle | None, where: str | None) -> tuple[pa.Table, str]:
    """Those of the world, or of ways through the rectangle; and what is said if they are too many."""
    events, has_older = _newest(past, None if rectangle is None else _wider(rectangle, grid), where)
    said = "no older ones are drawn" if has_older else ""
    if rectangle is None:
        return events, said
    if has_older:  # however many there are around it, as many of those inside
        inside, has_older_inside = _newest(past, rectangle, where)
        around = events.filter(pc.invert(_inside(events, rectangle)))
        events = join_tables([inside.filter(_inside(inside, rectangle)), around])
        said = said if has_older_inside else "no older ones around the rectangle are drawn"
    return _ways_through(events, rectangle), said


def _newest(past: Past, rectangle: Rectangle | None, where: str | None) -> tuple[pa.Table, bool]:
    """And whether there are older ones."""
    events = past.query(rectangle, where=where, limit=EVENTS_MAX + 1).events
    return events.slice(0, EVENTS_MAX), len(events) > EVENTS_MAX


def _ways_through(events: pa.Table, rectangle: Rectangle) -> pa.Table:
    """Of objects that are in the rectangle once all events, so that their ways lead out of the picture."""
    inside = _inside(events, rectangle)
    if OBJECT.name not in events.schema.names:
        return events.filter(inside)
    return events.filter(pc.is_in(events[OBJECT.name], events.filter(inside)[OBJECT.name].drop_null().unique()))


def _inside(rows: pa.Table, rectangle: Rectangle) -> pa.Array:
    (x, y), (xmin, ymin, xmax, ymax) = (rows[axis].to_numpy() for axis in ("x", "y")), rectangle
    return pa.array((xmin <= x) & (x <= xmax) & (ymin <= y) & (y <= ymax))


def _wider(rectangle: Rectangle, grid: Grid) -> Rectangle:
    """With as much on either side, as far as the world goes."""
    xmin, ymin, xmax, ymax = rectangle
    wide, high = xmax - xmin, ymax - ymin
    return (
        max(xmin - wide, grid.xmin),
        max(ymin - high, grid.ymin),
        min(xmax + wide, grid.xmax),
        min(ymax + high, grid.ymax),
    )


def _placed(rows: pa.Table) -> pa.Table:
    """Without those that have no place, such as the last alert of a subscription."""
    return rows.filter(pc.and_(pc.is_finite(rows["x"]), pc.is_finite(rows["y"]))) if len(rows) else rows


def sentence(drawn: Drawn) -> str:
    """How much there is of everything."""
    fences = f"{len(drawn.fences):,} subscriptions" + (
        " (no more are drawn)" if len(drawn.fences) == FENCES_MAX else ""
    )
    events = 'no events (none are kept: set [window] keep = "1 hour")'
    if drawn.events is not None:
        events = f"{len(drawn.events):,} events"
        if OBJECT.name in drawn.events.schema.names:
            events += f" of {pc.count_distinct(drawn.events[OBJECT.name]).as_py():,} objects"
        events += f" ({drawn.left_out})" if drawn.left_out else ""
    if drawn.alerts is None:
        return f"{fences}, {events}"
    placeless = len(drawn.alerts) - len(_placed(drawn.alerts))
    alerts = f"{len(drawn.alerts):,} alerts" + (f" ({placeless:,} without a place)" if placeless else "")
    return f"{fences}, {events}, {alerts}"


def draw(drawn: Drawn, rectangle: Rectangle | None = None) -> "Figure":
    """A figure, as large as the place is long; without `rectangle`, round the events and alerts, or the fences."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shapes = [_shape(feature) for feature in drawn.fences]
    xmin, ymin, xmax, ymax = rectangle or _extent(drawn, shapes)
    stretch, unit_m = 1.0, 1.0
    if drawn.in_degrees:
        stretch = 1 / max(np.cos(np.radians((ymin + ymax) / 2)), 0.05)  # a degree of latitude, in degrees of longitude
        unit_m = np.radians(1) * EARTH_M / stretch
    high = np.clip((ymax - ymin) * stretch / (xmax - xmin), 0.35, 1.4)
    figure = Figure(figsize=(WIDTH_IN, WIDTH_IN * high + 0.6), dpi=100, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)  # never a window, whatever the machine's default backend
    axes = figure.add_subplot()
    axes.set(xlim=(xmin, xmax), ylim=(ymin, ymax), xticks=(), yticks=(), facecolor="#F7F6F2")
    axes.set_aspect(stretch)
    axes.spines[:].set_visible(False)
    _draw_scale(axes, (xmin, ymin, xmax, ymax), unit_m)
    _draw_fences(axes, shapes)
    if drawn.events is not None and len(drawn.events):
        _draw_ways(axes, drawn.events)
    _name_fences(axes, drawn.fences, shapes)
    if drawn.alerts is not None and len(drawn.alerts):
        _draw_alerts(axes, _placed(drawn.alerts))
    if axes.get_legend_handles_labels()[0]:
        _draw_legend(figure)
    return figure


def _shape(feature: dict[str, Any]) -> shapely.Geometry:
    """A circle is a polygon of 96 corners here."""
    place, radius_m = feature["geometry"], feature["properties"].get(RADIUS)
    if radius_m is None:
        return shapely.geometry.shape(place)
    (lon, lat), degrees = place["coordinates"], np.degrees(radius_m / EARTH_M)
    turns = np.linspace(0, 2 * np.pi, 96, endpoint=False)
    around = np.column_stack([lon + degrees * np.cos(turns) / np.cos(np.radians(lat)), lat + degrees * np.sin(turns)])
    return shapely.Polygon(around)


def _extent(drawn: Drawn, shapes: Sequence[shapely.Geometry]) -> Rectangle:
    tables = [_placed(table) for table in (drawn.events, drawn.alerts) if table is not None]
    points = [np.column_stack([table["x"], table["y"]]) for table in tables if len(table)]
    if not points:
        points = [shapely.get_coordinates(shapes)] if shapes else []
    if not points:
        raise InputError("there are neither subscriptions nor events nor alerts to draw: run the stream first")
    low, high = np.min(np.vstack(points), axis=0), np.max(np.vstack(points), axis=0)
    margin = np.maximum((high - low) * MARGIN, MARGIN_MIN_DEGREES if drawn.in_degrees else MARGIN_MIN_M)
    return (*(low - margin).tolist(), *(high + margin).tolist())


def _draw_scale(axes: "Axes", box: Rectangle, unit_m: float) -> None:
    """A line of so many metres in the lower right corner, up to a fifth of the width; `unit_m` is a unit of x."""
    xmin, ymin, xmax, ymax = box
    most_m = (xmax - xmin) * unit_m / 5
    power = 10 ** np.floor(np.log10(most_m))
    metres = max(step * power for step in (1, 2, 5) if step * power <= most_m)
    right, up = xmax - 0.03 * (xmax - xmin), ymin + 0.03 * (ymax - ymin)
    left = right - metres / unit_m
    axes.plot((left, right), (up, up), color="#444444", linewidth=2, solid_capstyle="butt", zorder=6)
    text = f"{metres / 1000:,g} km" if metres >= 1000 else f"{metres:g} m"
    axes.annotate(
        text, ((left + right) / 2, up), (0, 3), textcoords="offset points", ha="center", color="#444444", fontsize=11
    )


def _draw_fences(axes: "Axes", shapes: Sequence[shapely.Geometry]) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    for shape in set(shapes):  # several subscriptions may ask for one place
        rings = [ring for part in shapely.get_parts(shape) for ring in (part.exterior, *part.interiors)]
        outline = Outline.make_compound_path(*(Outline(shapely.get_coordinates(ring), closed=True) for ring in rings))
        axes.add_patch(PathPatch(outline, facecolor="#4A6FA51F", edgecolor="#34507A", linewidth=1.4, zorder=2))


def _name_fences(axes: "Axes", fences: Sequence[dict[str, Any]], shapes: Sequence[shapely.Geometry]) -> None:
    names: dict[shapely.Geometry, list[str]] = {}
    for feature, shape in zip(fences, shapes, strict=True):
        own = names.setdefault(shape, [])
        own += [name for name in [_name(feature)] if name not in own]
    if len(names) > NAMES_MAX:
        return
    for shape, own in names.items():
        xmin, ymin, xmax, _ = shape.bounds
        axes.annotate(
            " · ".join(own),
            ((xmin + xmax) / 2, ymin),
            xytext=(0, -6),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=11,
            color="#22375A",
            weight="bold",
            clip_on=True,
            parse_math=False,
            zorder=4,
            bbox={"boxstyle": "round,pad=0.2", "facecolor": "#FFFFFFCC", "edgecolor": "none"},
        )


def _name(feature: dict[str, Any]) -> str:
    """What the payload calls it, else its id."""
    try:
        payload = json.loads(feature["properties"].get("payload") or "null")
    except ValueError:
        payload = None
    name = payload.get("name") if isinstance(payload, dict) else None
    return str(name if name else feature["id"])


def _draw_ways(axes: "Axes", events: pa.Table) -> None:
    """A line for each object, in the order of its times; dots where events have no object."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba_array

    if OBJECT.name not in events.schema.names:
        axes.plot(events["x"], events["y"], ".", color="#777777", markersize=2, alpha=0.5, zorder=1, label="event")
        return
    events = events.filter(events[OBJECT.name].is_valid()).sort_by([(OBJECT.name, "ascending"), ("ts", "ascending")])
    objects = events[OBJECT.name].combine_chunks().dictionary_encode()
    names = objects.dictionary.to_pylist()
    ends = np.flatnonzero(np.diff(objects.indices.to_numpy())) + 1
    ways = np.split(np.column_stack([events["x"], events["y"]]), ends)
    few = len(names) <= len(WAYS)
    colours = to_rgba_array([WAYS[number % len(WAYS)] for number in range(len(names))])
    for group in [slice(n, n + 1) for n in range(len(names))] if few else [slice(None)]:
        own, colour = ways[group], colours[group]
        lines = LineCollection(own, colors=colour, linewidths=1.6, alpha=0.55, zorder=3)
        lines.set(capstyle="projecting", joinstyle="round", label=_in_legend(str(names[group][0])) if few else None)
        axes.add_collection(lines, autolim=False)
        of_each = np.repeat(colour, [len(way) for way in own], axis=0)
        x, y = np.vstack(own).T
        axes.scatter(x, y, s=1.5, c=of_each, linewidths=1, alpha=0.7, zorder=3)


def _draw_legend(figure: "Figure") -> None:
    """In as many columns as there is room for."""
    for columns in range(LEGEND_COLUMNS_MAX, 0, -1):
        look = {"ncols": columns, "frameon": False, "fontsize": 11, "handletextpad": 0.4}
        legend = figure.legend(loc="outside lower center", **look)
        for text in legend.get_texts():
            text.set_parse_math(False)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width * (1 + LEGEND_FRAME):
            return
        legend.remove()


def _in_legend(label: str) -> str:
    """Matplotlib leaves out what begins with an underscore, so a space of no width goes before it."""
    return f"\u200b{label}" if label.startswith("_") else label


def _draw_alerts(axes: "Axes", alerts: pa.Table) -> None:
    found = [kind for kind in pc.unique(alerts[TRANSITION.name]).to_pylist() if kind is not None]
    for kind in [*(kind for kind in MARKS if kind in found), *(kind for kind in found if kind not in MARKS)]:
        own = alerts.filter(pc.equal(alerts[TRANSITION.name], kind))
        marker, colour, words = MARKS.get(kind, ("p", "#444444", kind))
        look = {"s": 70, "c": colour, "marker": marker, "edgecolors": "white", "linewidths": 0.9, "zorder": 5}
        axes.scatter(own["x"], own["y"], label=_in_legend(f"{words} ({len(own):,})"), **look)
