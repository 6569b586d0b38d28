"""The mark of events whose geometry validation found fit as it is, so that no later stage checks it again.

An event keeps its geometry as it came, and everybody who needs the area reads that. Checking takes several times as
long as reading, and an area may meet many partitions. The mark is a column from validation to the matcher.
"""

import pyarrow as pa

from geoswarm.model import GEOMETRY

SOUND = pa.field("_sound", pa.bool_(), nullable=False)
"""Plain WKB (`core/shapes/wkb.py`), read without complaint, and taken as it came."""


def marked_schema(events: pa.Schema) -> pa.Schema:
    """Events as they leave validation, where they are marked: only if some could be areas."""
    return events.append(SOUND) if GEOMETRY.name in events.names else events


def drop_mark(events: pa.RecordBatch) -> pa.RecordBatch:
    """As they came."""
    return events.drop_columns([SOUND.name]) if SOUND.name in events.schema.names else events
