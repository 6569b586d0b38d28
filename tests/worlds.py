"""Small random worlds for tests: operations, events, and rectangles from points to continents."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
import shapely.affinity

from geoswarm.control.strategy import Sample
from geoswarm.core.arrays.jit import Floats
from geoswarm.model import TIMESTAMP

BOUNDS = (-180.0, -90.0, 180.0, 90.0)


def write_files(folder: Path, tables: list[pa.Table]) -> None:
    """One Parquet file per table. Spark reads a folder in the order of its files' times, so these differ."""
    folder.mkdir(exist_ok=True)
    for i, table in enumerate(tables):
        file = folder / f"{i:05d}.parquet"
        pq.write_table(table, file)
        os.utime(file, (1_000_000 + i, 1_000_000 + i))


def rectangles(rng: np.random.Generator, n: int, *, snap: float | None = None) -> Floats:
    """(n, 4), most of them small, some as large as the world; `snap` puts sides on a lattice, so that borders meet."""
    size = np.where(rng.random(n) < 0.15, rng.uniform(1, 300, n), rng.uniform(0.01, 6, n))
    x, y = rng.uniform(-180, 180, n), rng.uniform(-90, 90, n)
    rects = np.stack([x - size / 2, y - size / 4, x + size / 2, y + size / 4], axis=1)
    if snap:
        rects = np.round(rects / snap) * snap
        rects[:, 2:] = np.maximum(rects[:, 2:], rects[:, :2] + snap)
    rects[:, 0::2] = rects[:, 0::2].clip(-180, 180)
    rects[:, 1::2] = rects[:, 1::2].clip(-90, 90)
    flat = (rects[:, 0] >= rects[:, 2]) | (rects[:, 1] >= rects[:, 3])
    rects[flat] = BOUNDS
    return rects


def events(rng: np.random.Generator, n: int, *, first_id: int = 0, snap: float | None = None) -> pa.RecordBatch:
    x, y = rng.uniform(-180, 180, n), rng.uniform(-90, 90, n)
    if snap:
        x, y = np.round(x / snap) * snap, np.round(y / snap) * snap
    ids = np.arange(first_id, first_id + n)
    return pa.record_batch({"event_id": ids, "ts": pa.array(ids).cast(TIMESTAMP), "x": x, "y": y})


def wandering_events(
    rng: np.random.Generator, n: int, *, near: float, objects: int, first_id: int = 0, at_us: int = 0
) -> pa.Table:
    """Events of objects that stay about a place for a while, with excursions, in the middle of the world; some have
    no object, some are up to 15 s late, some at the same time."""
    ids = np.arange(first_id, first_id + n)
    ts = at_us + rng.integers(-15, 11, n) * np.where(rng.random(n) < 0.8, 1_000_000, 500_000)
    names = rng.integers(0, objects, n)
    places = np.random.default_rng(at_us // 40_000_000).uniform(-near, near, (objects, 2))[names]
    places = np.where(rng.random((n, 1)) < 0.3, rng.uniform(-near, near, (n, 2)), places + rng.uniform(-1, 1, (n, 2)))
    x, y = places.clip(-near, near).T
    who = pa.array(names, mask=rng.random(n) < 0.1)
    return pa.table({"event_id": ids, "ts": pa.array(ts).cast(TIMESTAMP), "x": x, "y": y, "object_id": who})


def border_walks(
    rng: np.random.Generator, n: int, *, step: float, objects: int, first_id: int = 0, at_us: int = 0
) -> pa.Table:
    """Events of objects that waver about the borders of `with_borders`; as in `wandering_events`, some have no object,
    some are late, some at the same time. Now and then an object sends nothing for a while."""
    ids, names = np.arange(first_id, first_id + n), rng.integers(0, objects, n)
    quiet = (names + at_us // 40_000_000) % 5 == 0
    home = np.random.default_rng(0).integers(-4, 5, (objects, 2)) * step
    x, y = (home[names] + rng.normal(0.0, step / 3, (n, 2))).T
    ts = at_us + rng.integers(-12, 11, n) * 1_000_000
    who = pa.array(names, mask=(rng.random(n) < 0.05) | quiet)
    return pa.table({"event_id": ids, "ts": pa.array(ts).cast(TIMESTAMP), "x": x, "y": y, "object_id": who})


def with_borders(operations: pa.Table, step: float) -> pa.Table:
    """Sides are multiples of `step`, so that regions share borders."""
    for side in ("xmin", "ymin", "xmax", "ymax"):
        snapped = np.round(operations.column(side).to_numpy() / step) * step
        operations = operations.set_column(operations.schema.get_field_index(side), side, pa.array(snapped))
    return operations


def operations(
    rng: np.random.Generator, n: int, *, ids: int, now_us: int = 0, near: float | None = None, lasts_us: int = 50
) -> pa.Table:
    """A storm: registers, cancels and replaces over a small set of ids, some expiring, some nonsense. With `near`, all
    of them have to do with the middle of the world."""
    rects = rectangles(rng, n)
    if near is not None:
        corner = rng.uniform(-near, near, (n, 2))
        rects = np.concatenate([corner, corner + rng.uniform(near / 8, near, (n, 2))], axis=1)
    spoiled = rng.random(n) < 0.05
    rects[spoiled] = rects[spoiled][:, [2, 1, 0, 3]]  # xmin and xmax swapped
    lifetimes = np.where(rng.random(n) < 0.3, now_us + rng.integers(-2, lasts_us, n), -1)
    return pa.table(
        {
            "op": rng.choice(["register", "cancel", "replace", "remove"], n, p=[0.5, 0.3, 0.18, 0.02]),
            "sub_id": rng.integers(0, ids, n),
            "user": rng.choice(["anastasia", "benjamin", "çağlayan"], n),
            "xmin": rects[:, 0],
            "ymin": rects[:, 1],
            "xmax": rects[:, 2],
            "ymax": rects[:, 3],
            "expires": pa.array(lifetimes, mask=lifetimes < 0).cast(TIMESTAMP),
            "geometry": pa.nulls(n, pa.binary()),
            "keywords": pa.nulls(n, pa.string()),
        }
    )


def with_shapes(rng: np.random.Generator, operations: pa.Table, *, snap: float | None = None) -> pa.Table:
    """Some have a polygon, a ring with a hole, several parts or a circle instead of sides; a few are nonsense."""
    shapes: list[bytes | None] = []
    for sides in operations.select(["xmin", "ymin", "xmax", "ymax"]).to_pylist():
        x, y = (sides["xmin"] + sides["xmax"]) / 2, (sides["ymin"] + sides["ymax"]) / 2
        kind = rng.choice(["", "star", "hole", "parts", "circle", "bad"], p=[0.3, 0.3, 0.1, 0.1, 0.15, 0.05])
        radius = max(0.01, min(abs(sides["ymax"] - sides["ymin"]), 180 - abs(x), 90 - abs(y)) / 2)
        star = _star(rng, x, y, radius, snap)
        if not kind or radius <= 0.01 or not star.is_valid or star.area == 0:
            shapes.append(None)
        elif kind == "circle":
            shapes.append(f"CIRCLE({x} {y}, {rng.uniform(1, 2_000_000)})".encode())
        elif kind == "bad":
            shapes.append(b"POLYGON((0 0, 10 10, 10 0, 0 10, 0 0))")
        elif kind == "hole":
            shapes.append(shapely.to_wkb(star.difference(_star(rng, x, y, radius / 3, snap).buffer(0))))
        elif kind == "parts":
            far = shapely.affinity.translate(star, 0.0, -2.1 * radius) if y > 0 else star
            shapes.append(shapely.to_wkt(star.union(far.intersection(shapely.box(*BOUNDS)))).encode())
        else:
            shapes.append(shapely.to_wkb(star))
    column = operations.schema.get_field_index("geometry")
    return operations.set_column(column, "geometry", pa.array(shapes, pa.binary()))


def _star(rng: np.random.Generator, x: float, y: float, radius: float, snap: float | None) -> shapely.Polygon:
    angles = np.sort(rng.uniform(0, 2 * np.pi, int(rng.integers(5, 40))))
    reach = radius * rng.uniform(0.3, 1.0, len(angles))
    corners = np.stack([x + reach * np.cos(angles), y + reach * np.sin(angles)], axis=1)
    return shapely.Polygon(np.round(corners / snap) * snap if snap else corners)


WORDS = ["flood", "river", "dam", "Straße", "café", "fire", "東京", "storm", "a", "b2"]


def sentence(rng: np.random.Generator) -> str | None:
    """A few words in any case, with other signs between them; now and then nothing at all."""
    if rng.random() < 0.1:
        return None
    words = [str(w) for w in rng.choice(WORDS, int(rng.integers(0, 7)))]
    return str(rng.choice([" ", ", ", " #", "!"])).join(w.upper() if rng.random() < 0.3 else w for w in words)


def expression(rng: np.random.Generator, depth: int = 0) -> str:
    """Any nesting of AND and OR; now and then one that cannot be read."""
    if depth == 0 and rng.random() < 0.05:
        return str(rng.choice(["flood AND", "(river", "...", "OR dam", ""]))
    if depth > 2 or rng.random() < 0.4:
        return str(rng.choice(WORDS))
    operator = str(rng.choice([" AND ", " OR ", " "]))
    parts = [expression(rng, depth + 1) for _ in range(int(rng.integers(2, 4)))]
    return "(" + operator.join(parts) + ")"


def _with_not(rng: np.random.Generator, text: str) -> str:
    """Some must not have other words; now and then there is nothing else."""
    if rng.random() < 0.75:
        return text
    banned = str(rng.choice(WORDS)) if rng.random() < 0.5 else expression(rng, 1)
    return f"NOT {banned}" if rng.random() < 0.05 else f"({text}) AND NOT {banned}"


def with_texts(rng: np.random.Generator, rows: pa.RecordBatch) -> pa.Table:
    return pa.table(rows).append_column("text", pa.array([sentence(rng) for _ in range(len(rows))], pa.string()))


def with_keywords(rng: np.random.Generator, operations: pa.Table, share: float = 0.7) -> pa.Table:
    """Some subscriptions ask for words in their place, some for words anywhere, some for a place only."""
    asks = rng.random(len(operations)) < share
    anywhere = asks & (rng.random(len(operations)) < 0.3)
    for side in ("xmin", "ymin", "xmax", "ymax"):
        place = operations.schema.get_field_index(side)
        sides = operations.column(side).to_numpy()
        operations = operations.set_column(place, side, pa.array(sides, mask=anywhere))
    keywords = pa.array([_with_not(rng, expression(rng)) if ask else None for ask in asks], pa.string())
    return operations.set_column(operations.schema.get_field_index("keywords"), "keywords", keywords)


ON = [None, "inside", "enter", "exit", "dwell(0)", "dwell(5)", " dwell( 12.5 ) ", "dwell(1e1)", "leave", "dwell(-1)"]


def with_on(rng: np.random.Generator, operations: pa.Table) -> pa.Table:
    """Each is on something, now and then on what there is not."""
    shares = [0.15, 0.05, 0.2, 0.2, 0.08, 0.15, 0.06, 0.06, 0.03, 0.02]
    return operations.append_column("on", pa.array([ON[i] for i in rng.choice(len(ON), len(operations), p=shares)]))


CONFIRMS = ["1 fix", "2 fixes", " 3 fixes ", "4 s", "7.5 s", "0.25 min", "3 fix", "0 fixes", "-1 s", "2 days"]
COOLDOWNS = ["5 s", "20 s", "1 min", "2 hours", "0 s", "soon"]


def with_alert_rules(rng: np.random.Generator, operations: pa.Table) -> pa.Table:
    """Some wait for a confirmation, some have a pause after an alert; now and then it is nonsense, or of one that is on
    `inside`."""
    n, follows = len(operations), np.array([on not in (None, "inside") for on in operations["on"].to_pylist()])
    asks = np.where(follows, 0.7, 0.04)
    shares = {
        "confirm": [0.04, 0.24, 0.2, 0.16, 0.16, 0.12, *[0.02] * 4],
        "cooldown": [0.3, 0.3, 0.2, 0.16, 0.02, 0.02],
    }
    for name, texts in (("confirm", CONFIRMS), ("cooldown", COOLDOWNS)):
        chosen = np.array(texts)[rng.choice(len(texts), n, p=shares[name])]
        operations = operations.append_column(name, pa.array(chosen, pa.string(), mask=rng.random(n) > asks))
    return operations


def with_ways(rng: np.random.Generator, operations: pa.Table) -> pa.Table:
    """Some are on cross instead; most of these have none of what does not go with it."""
    chosen = rng.random(len(operations)) < 0.25
    on = [("cross" if is_it else on) for is_it, on in zip(chosen, operations["on"].to_pylist(), strict=True)]
    operations = operations.set_column(operations.schema.get_field_index("on"), "on", pa.array(on, pa.string()))
    for name in ("confirm", "exit_buffer_m"):
        column, place = operations[name], operations.schema.get_field_index(name)
        lost = pa.array(chosen & (rng.random(len(operations)) < 0.95))
        kept = pa.compute.if_else(lost, pa.scalar(None, column.type), column)
        operations = operations.set_column(place, name, kept)
    return operations


def with_buffers(rng: np.random.Generator, operations: pa.Table) -> pa.Table:
    """Some that follow objects let them go some way outside; now and then it is nonsense, or of one on `inside`."""
    n, follows = len(operations), np.array([on not in (None, "inside") for on in operations["on"].to_pylist()])
    metres = rng.choice([30_000.0, 50_000.5, 100_000.0, 0.0, -1.0, np.nan], n, p=[0.4, 0.3, 0.24, 0.02, 0.02, 0.02])
    none = rng.random(n) > np.where(follows, 0.5, 0.03)
    return operations.append_column("exit_buffer_m", pa.array(metres, mask=none))


def with_accuracy(rng: np.random.Generator, rows: pa.Table) -> pa.Table:
    """Metres of all kinds; some unknown, some nonsense."""
    metres = np.where(rng.random(len(rows)) < 0.1, rng.choice([-1.0, np.nan, 20.0, np.inf], len(rows)), 0.0)
    metres += np.where(metres == 0.0, rng.exponential(10.0, len(rows)), 0.0)
    return rows.append_column("accuracy_m", pa.array(metres, mask=rng.random(len(rows)) < 0.1))


AGGREGATES: list[tuple[str | None, str | None, str | None, str | None]] = [
    (None, None, None, None),
    ("count", "tumbling(5 s)", None, None),
    ("count", "tumbling(5 s)", None, "count > 1"),
    ("COUNT", " tumbling ( 5000 ms )", None, "value < 3"),
    ("sum(v)", "sliding(6 s, 2 s)", "kind", None),
    ("sum(v)", "sliding(6 s, 2 s)", "kind", "sum > 0 OR sum IS NULL"),
    ("avg(n)", "count(3)", "kind", None),
    ("min(v)", "session(3 s)", None, None),
    ("max(n)", "session(2 s)", "kind", "max > 2"),
    ("distinct(kind)", "tumbling(10 s)", None, None),
    ("quantile(v, 0.5)", "sliding(4 s, 4 s)", None, "quantile > 0"),
    ("top(kind, 2)", "count(4)", None, "count = 4"),
    ("median(v)", "tumbling(5 s)", None, None),
    ("count", None, None, None),
    (None, "tumbling(5 s)", None, None),
    ("count", "tumbling(5 s)", None, "speed > 3"),
]
"""What a subscription may count; the last ones are nonsense."""


def with_aggregates(rng: np.random.Generator, operations: pa.Table) -> pa.Table:
    """Some count instead of reporting matches; some ask for what is not beside an aggregate."""
    chosen = rng.choice(len(AGGREGATES), len(operations), p=[0.3, *[0.06] * 11, *[0.01] * 4])
    for n, name in enumerate(("aggregate", "window", "group_by", "when")):
        column = pa.array([AGGREGATES[i][n] for i in chosen], pa.string())
        operations = operations.append_column(name, column)
    return operations


PAYLOADS = [None, '{"route": 7, "stops": [1, 2.5, null]}', '"Straße 東京"', "7", " [ ] ", "null", "{route: 7}", "route"]


def with_payloads(rng: np.random.Generator, operations: pa.Table) -> pa.Table:
    """Some have JSON with them; a few have what is none."""
    chosen = rng.choice(len(PAYLOADS), len(operations), p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.06, 0.02, 0.02])
    return operations.append_column("payload", pa.array([PAYLOADS[i] for i in chosen], pa.string()))


def with_endings(rng: np.random.Generator, operations: pa.Table) -> pa.Table:
    """Some end after a few alerts, and some want to be told of their end; a few are nonsense."""
    n = len(operations)
    drawn = rng.choice([1, 2, 5, 20, 200, 0, -1], n, p=[0.2, 0.2, 0.2, 0.2, 0.16, 0.02, 0.02])
    most = pa.array(drawn, pa.int64(), mask=rng.random(n) < 0.5)
    words = ["", "ended", " initial,ended ", "initial", "ended,", "ended, ended"]
    notify = rng.choice(words, n, p=[0.2, 0.3, 0.3, 0.16, 0.02, 0.02])
    notify = pa.array([word or None for word in notify], pa.string())
    return operations.append_column("max_events", most).append_column("notify", notify)


PREDICATES = [None, "intersects", "contains", "within", "covers", " covers ", "inside"]


def with_predicates(rng: np.random.Generator, operations: pa.Table) -> pa.Table:
    """Each region must lie in some way to what is published, now and then in one that there is not."""
    chosen = rng.choice(len(PREDICATES), len(operations), p=[0.25, 0.1, 0.2, 0.2, 0.15, 0.05, 0.05])
    return operations.append_column("predicate", pa.array([PREDICATES[i] for i in chosen], pa.string()))


def with_areas(
    rng: np.random.Generator, rows: pa.Table, share: float = 0.5, *, snap: float | None = None, near: float = 180.0
) -> pa.Table:
    """Some of the events are polygons, rectangles, circles, or points as geometry; a few are nonsense. Most areas leave
    it to the engine where they are."""
    n = len(rows)
    sides = rectangles(rng, n, snap=snap) * (near / 180)
    regions = {name: sides[:, k] for k, name in enumerate(("xmin", "ymin", "xmax", "ymax"))}
    drawn = with_shapes(rng, pa.table(regions | {"geometry": pa.nulls(n, pa.binary())}), snap=snap)["geometry"]
    # An edge of more than 180 degrees would be taken to go the other way round.
    boxes = shapely.to_wkb(shapely.segmentize(shapely.box(*sides.T), 90.0))
    points = shapely.to_wkt(shapely.points(rows["x"].to_numpy(), rows["y"].to_numpy()), rounding_precision=-1)
    kinds = rng.choice(4, n, p=[1 - share, share * 0.6, share * 0.35, share * 0.05])
    chosen = zip(kinds, drawn.to_pylist(), boxes, points, strict=True)
    shapes = [(None, shape, box, point.encode())[kind] for kind, shape, box, point in chosen]
    lost = np.array([shape is not None for shape in shapes]) & (rng.random(n) < 0.9)
    for axis in ("x", "y"):
        place = rows.schema.get_field_index(axis)
        rows = rows.set_column(place, axis, pa.array(rows[axis].to_numpy(), mask=lost))
    return rows.append_column("geometry", pa.array(shapes, pa.binary()))


def random_sample(rng: np.random.Generator, points: Floats, rects: Floats) -> Sample:
    """What may be known of a stream beforehand, with words for those strategies that look at them."""
    texts = pa.array([sentence(rng) for _ in points], pa.string())
    return Sample(points, rects, texts, pa.array([expression(rng) for _ in rects], pa.string()))


STATUSES = ["free", "idle", "busy", "o'clock", "", "東京"]
WHERES = [
    "speed > 80 AND status IN ('free', 'idle') AND NOT battery < 20",
    "status = 'free'",
    "status='free' and speed>=40",
    "battery = 7",
    "battery = 7.5 OR battery = 7.0",
    "battery IN (1, 2, 3, 4, 5, 6)",
    "NOT speed > 50",
    "speed IS NULL OR urgent",
    "urgent = TRUE AND status <> 'busy'",
    "status LIKE '%o%'",
    "since < '1970-01-01T00:00:40' AND speed BETWEEN 10 AND 90",
    "since = '1970-01-01T00:00:30'",
    "speed < battery",
    "'o''clock' = status",
    "battery = 9007199254740993 OR speed = 1e400",
    "altitude > 3",
    "status > 3",
    "speed >",
    "",
]
"""What may be asked of the columns of `with_facts`: the fourth from the end of a column that there is not, the next of
one that cannot be compared, and the last are nonsense; so is a number beyond all numbers."""
OBJECT_LISTS = ["[1]", "[1, 2, 3]", '["4", 5, 6]', '["van-7"]', "[7, 7]", "[]", "7", '{"id": 7}', "[1.5]", "[true]"]


def with_facts(rng: np.random.Generator, rows: pa.Table, *, objects: int | None = 12) -> pa.Table:
    """Numbers, texts, booleans and times, each null now and then; with `objects` those that events are about."""
    n = len(rows)

    def some(values: Any, kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind, mask=rng.random(n) < 0.1)

    rows = pa.table(rows).append_column("speed", some(np.round(rng.uniform(0, 120, n)), pa.float64()))
    rows = rows.append_column("status", some(rng.choice(STATUSES, n), pa.string()))
    rows = rows.append_column("battery", some(rng.integers(0, 40, n), pa.int32()))
    rows = rows.append_column("urgent", some(rng.random(n) < 0.3, pa.bool_()))
    rows = rows.append_column("since", some(rng.integers(0, 60, n) * 1_000_000, pa.timestamp("us", "UTC")))
    if objects is None or "object_id" in rows.schema.names:
        return rows
    return rows.append_column("object_id", some(rng.integers(0, objects, n), pa.int64()))


def with_demands(rng: np.random.Generator, operations: pa.Table, share: float = 0.6) -> pa.Table:
    """Some ask for a condition on columns, some for objects, some for both; a few of it is nonsense."""
    n = len(operations)
    for name, texts, sound in (("where", WHERES, 14), ("objects", OBJECT_LISTS, 5)):
        weights = np.where(np.arange(len(texts)) < sound, 1.0, 0.1)
        chosen = np.array(texts)[rng.choice(len(texts), n, p=weights / weights.sum())]
        operations = operations.append_column(name, pa.array(chosen, pa.string(), mask=rng.random(n) > share))
    return operations
