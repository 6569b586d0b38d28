"""Parse columns declared as in SQL, such as "text string, speed double", without Spark."""

import re

import pyarrow as pa

from geoswarm.errors import SettingsError
from geoswarm.model import TIMESTAMP

TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "double": pa.float64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
    "date": pa.date32(),
}
_COLUMN = re.compile(r"^\s*(?:`(?P<quoted>[^`]+)`|(?P<name>\w+))\s*:?\s+(?P<type>\w+)\s*$")


def parse_columns(text: str) -> list[pa.Field]:
    fields = []
    for part in text.split(",") if text.strip() else []:
        found = _COLUMN.match(part)
        if found is None or found["type"].lower() not in TYPES:
            raise SettingsError(
                f"column {part.strip()!r} cannot be read: write a name and a type, such as `speed double`; "
                f"the local engine knows {', '.join(TYPES)}"
            )
        fields.append(pa.field(found["quoted"] or found["name"], TYPES[found["type"].lower()]))
    return fields
