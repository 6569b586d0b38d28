"""What a subscriber gives along and gets back, as an attribute: any JSON, kept as the text that was given.

It is never interpreted: nothing is matched by it, and white space and the order of keys stay.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa

from geoswarm.core.subscriptions.attribute_kind import Inspection
from geoswarm.core.subscriptions.kinds import TextAttribute
from geoswarm.errors import InputError

PAYLOAD_BYTES_MAX = 10_000
"""A million subscriptions with as much are 10 GB on the disk of every host that matches."""


class PayloadAttribute(TextAttribute):
    reasons: ClassVar[Mapping[str, str]] = {**TextAttribute.reasons, "payload": "a payload is no JSON"}

    def __init__(self) -> None:
        super().__init__("payload", "any JSON, which is kept with the subscription; null: none", PAYLOAD_BYTES_MAX)

    def parse(self, inspection: Inspection) -> pa.LargeStringArray:
        values = super().parse(inspection)
        if values.null_count < len(values):
            rows = np.flatnonzero(inspection.puts & ~inspection.is_null(self.name))
            # As bytes: text that is not UTF-8 must not stop the stream.
            coded = values.take(pa.array(rows)).cast(pa.large_binary()).dictionary_encode()
            whys = [fault_of(text) for text in coded.dictionary.to_pylist()]
            said = [whys[code] for code in coded.indices.to_pylist()]
            faulty = np.array([why is not None for why in said], np.bool_)
            detail = "payload of subscription {sub_id} is no JSON: {why}"
            inspection.refusals.turn_away_each(rows[faulty], "payload", detail, [why for why in said if why])
        return values


def fault_of(text: bytes) -> str | None:
    """Why a text is no JSON, and where; None if it is. One that is too long is not looked at."""
    if len(text) > PAYLOAD_BYTES_MAX:
        return None
    try:
        json.loads(text.decode(), parse_int=len, parse_float=len, parse_constant=_refuse)
    except json.JSONDecodeError as why:
        return f"{why.msg} at character {why.pos + 1}; a text is written in double quotes"
    except UnicodeDecodeError as why:
        return f"byte {why.start + 1} is no UTF-8"
    except RecursionError:
        return "its arrays and objects are too deep within each other"
    except ValueError as why:
        return str(why)
    return None


def payload_text(sub_id: Any, value: Any) -> str:
    """The JSON of a Python value; a text is JSON already."""
    if isinstance(value, str):
        return value
    try:
        return _dump(value)
    except (TypeError, ValueError, RecursionError) as why:
        place = _place_of_fault(value, "payload")
        raise InputError(f"payload of subscription {sub_id} is no JSON: {place}: {why}") from None


def _dump(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text.encode()  # half of a surrogate pair is no text
    return text


def _place_of_fault(value: Any, place: str) -> str:
    """The innermost value that is no JSON, such as payload['stops'][2]."""
    within: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        within = list(value.items())
    elif isinstance(value, list | tuple):
        within = list(enumerate(value))
    for name, inner in within:
        try:
            _dump(inner)
        except (TypeError, ValueError) as why:
            return place if "Circular" in str(why) else _place_of_fault(inner, f"{place}[{name!r}]")
        except RecursionError:
            return place
    return place


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
