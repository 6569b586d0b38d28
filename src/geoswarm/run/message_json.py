"""JSON of what formats of messages have beside the types of JSON."""

import base64
import json
import math
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any
from uuid import UUID

from geoswarm.run.columns import Path
from geoswarm.run.schema_registry import UnreadableMessageError

WKB_BEGINS = (b"\x00", b"\x01")
"""The order of bytes, which no text begins with."""


def to_json(value: Any) -> str:
    """JSON of what a format has beside the types of JSON: times as ISO 8601, bytes in base 64, others as their text."""
    return json.dumps(_finite(value), default=_plain, ensure_ascii=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    """NaN and infinities as the texts that JSON has for them here."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(name): _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def with_digits(row: Any, geometry: Path) -> Any:
    """The same, with WKB as the hexadecimal digits that geometries are read from; other bytes are text."""
    place = row
    for name in geometry[:-1]:
        place = place.get(name) if isinstance(place, dict) else None
    if isinstance(place, dict) and isinstance(value := place.get(geometry[-1]), bytes):
        place[geometry[-1]] = value.hex() if value[:1] in WKB_BEGINS else value.decode(errors="replace")
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID | Decimal):
        return str(value)
    raise UnreadableMessageError(f"a value of type {type(value).__name__} has no JSON")
