"""Show kept events to people and programs: as a table, CSV, GeoJSON or Parquet, and how they were found."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from geoswarm.config import KEPT_SECONDS, amount_of
from geoswarm.errors import InputError, SettingsError
from geoswarm.run.past import Answer, Past

EventFormat = Literal["table", "csv", "geojson", "parquet"]
_NUMBER = r"\s*(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)\s*"


def read_rectangle(text: str) -> tuple[float, float, float, float]:
    """ "xmin,ymin,xmax,ymax"."""
    found = re.fullmatch(",".join([_NUMBER] * 4), text)
    if not found:
        raise SettingsError(f"--rectangle {text!r} is not xmin,ymin,xmax,ymax: write four numbers with commas")
    xmin, ymin, xmax, ymax = map(float, found.groups())
    return xmin, ymin, xmax, ymax


def read_time(option: str, text: str | None, now_s: float) -> datetime | None:
    """A time such as 2026-01-31T12:00, in UTC unless it names a zone, or how long ago, such as "15 min"."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        pass
    try:
        number, unit = amount_of(text)
        return datetime.fromtimestamp(now_s, UTC) - timedelta(seconds=number * KEPT_SECONDS[unit])
    except (ValueError, KeyError):
        raise SettingsError(
            f'{option} {text!r} is no time: write 2026-01-31T12:00, or how long ago, such as "15 min"'
        ) from None


def write_events(events: pa.Table, path: Path, form: EventFormat) -> None:
    if form == "parquet":
        pq.write_table(events, path)
    elif form == "csv":
        csv.write_csv(_as_text(events), path)
    else:
        path.write_text(json.dumps(as_geojson(events)))


def as_csv(events: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    csv.write_csv(_as_text(events), sink)
    return str(sink.getvalue().to_pybytes().decode())


def as_geojson(events: pa.Table) -> dict[str, Any]:
    """A collection of points; all columns but `x` and `y` are properties."""
    missing = [name for name in ("x", "y") if name not in events.schema.names]
    if missing:
        raise InputError(f"GeoJSON needs the columns x and y: add {' and '.join(missing)} to --columns")
    return {"type": "FeatureCollection", "features": [_feature(row) for row in _as_text(events).to_pylist()]}


def _feature(row: dict[str, Any]) -> dict[str, Any]:
    place = {"type": "Point", "coordinates": [row.pop("x"), row.pop("y")]}
    properties = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    return {"type": "Feature", "geometry": place, "properties": properties}


def _as_text(events: pa.Table) -> pa.Table:
    """Geometries are bytes, which text has no place for, unless they are text themselves; others become hexadecimal."""
    for place, field in enumerate(events.schema):
        if pa.types.is_binary(field.type):
            shown = [None if value is None else _readable(value) for value in events.column(place).to_pylist()]
            events = events.set_column(place, field.name, pa.array(shown, pa.string()))
    return events


def _readable(value: bytes) -> str:
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
