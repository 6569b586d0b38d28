"""Show kept events and objects to people and programs: as a table, CSV, GeoJSON, JSON or Parquet, and how they were
found. Subscriptions are written by the same functions, with features of their own (`subscriptions.py`)."""

import json
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from math import isfinite, isnan
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from geoswarm.core.subscriptions.since import EPOCH, moment_us
from geoswarm.errors import InputError, SettingsError
from geoswarm.run.past import Answer, Past

EventFormat = Literal["table", "csv", "geojson", "json", "parquet"]
MakeFeature = Callable[[dict[str, Any]], dict[str, Any]]
"""A row as a feature of GeoJSON."""
_NUMBER = r"\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*"


def read_rectangle(text: str) -> tuple[float, float, float, float]:
    """ "xmin,ymin,xmax,ymax"."""
    found = re.fullmatch(",".join([_NUMBER] * 4), text)
    if not found:
        raise SettingsError(f"--rectangle {text!r} is not xmin,ymin,xmax,ymax: write four numbers with commas")
    xmin, ymin, xmax, ymax = map(float, found.groups())
    return xmin, ymin, xmax, ymax


def read_place(text: str) -> tuple[float, float]:
    """ "lon,lat"."""
    found = re.fullmatch(",".join([_NUMBER] * 2), text)
    if not found:
        raise SettingsError(f"--at {text!r} is not lon,lat: write two numbers with a comma")
    lon, lat = map(float, found.groups())
    return lon, lat


def read_time(option: str, text: str | None, now_s: float) -> datetime | None:
    """A time such as 2026-01-31T12:00, in UTC unless it names a zone, or how long ago, such as "15 min"."""
    if text is None:
        return None
    moment = moment_us(text, int(now_s * 1e6))
    if moment is None:
        raise SettingsError(f'{option} {text!r} is no time: write 2026-01-31T12:00, or how long ago, such as "15 min"')
    return EPOCH + timedelta(microseconds=moment)


def write_events(events: pa.Table, path: Path, form: EventFormat, feature: MakeFeature | None = None) -> None:
    if form == "parquet":
        pq.write_table(events, path)
    elif form == "csv":
        csv.write_csv(_for_csv(events), path)
    else:
        path.write_text(as_text(events, form, feature))


def as_text(events: pa.Table, form: EventFormat, feature: MakeFeature | None = None) -> str:
    """As CSV, GeoJSON or JSON. Without `feature`, each row is a point with its columns `x` and `y`."""
    if form == "csv":
        return as_csv(events)
    if form == "json":
        return json.dumps([as_json(row) for row in events.to_pylist()]) + "\n"
    if feature is None:
        return json.dumps(as_geojson(events)) + "\n"
    return json.dumps({"type": "FeatureCollection", "features": [feature(row) for row in events.to_pylist()]}) + "\n"


def as_csv(events: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    csv.write_csv(_for_csv(events), sink)
    return str(sink.getvalue().to_pybytes().decode())


def as_geojson(events: pa.Table) -> dict[str, Any]:
    """A collection of points; all columns but `x` and `y` are properties."""
    missing = [name for name in ("x", "y") if name not in events.schema.names]
    if missing:
        raise InputError(f"GeoJSON needs the columns x and y: add {' and '.join(missing)} to --columns")
    return {"type": "FeatureCollection", "features": [_feature(row) for row in events.to_pylist()]}


def _feature(row: dict[str, Any]) -> dict[str, Any]:
    place = {"type": "Point", "coordinates": [row.pop("x"), row.pop("y")]}
    return {"type": "Feature", "geometry": place, "properties": as_json(row)}


def as_json(value: Any) -> Any:
    """A value as JSON has it; as in `run/json_writing.py`, NaN and infinities are texts."""
    if isinstance(value, dict):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, bytes):
        return _readable(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _for_csv(events: pa.Table) -> pa.Table:
    """Bytes as text, and lists and structs as JSON: the writer has no place for them."""
    for place, field in enumerate(events.schema):
        if _is_binary(field.type) or pa.types.is_nested(field.type):
            held = (as_json(value) for value in events.column(place).to_pylist())
            shown = [value if value is None or isinstance(value, str) else json.dumps(value) for value in held]
            events = events.set_column(place, field.name, pa.array(shown, pa.string()))
    return events


def _is_binary(kind: pa.DataType) -> bool:
    is_binary: bool = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return is_binary


def _readable(value: bytes) -> str:
    """Geometries are bytes, which text has no place for, unless they are text themselves; others become hexadecimal."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()


def explanation(past: Past, answer: Answer) -> Iterator[str]:
    """What was read for an answer, and which partitions had the region: the chain that the paper follows (§5.2)."""
    opened, blocks = (sum(getattr(run, name) for run in answer.touched) for name in ("parts", "blocks"))
    of_parts = sum(run.blocks_of_parts for run in answer.touched)
    found = f"{len(answer.events):,} events from {opened} of {answer.files} files"
    yield f"{found}, {blocks:,} of their {of_parts:,} blocks"
    for touched in answer.touched:
        run = touched.run
        span = f"batch {run.first}" if run.first == run.last else f"batches {run.first} to {run.last}"
        yield f"  {span}: {run.rows:,} events kept, {touched.blocks} of {touched.blocks_of_parts} blocks read"
    for link in past.chain(answer):
        owners = ", ".join(map(str, link.executors))
        word = "executor" if len(link.executors) == 1 else "executors"
        yield f"plan {link.epoch}, partition {link.partition}, {word} {owners}: {link.batches} batches"
