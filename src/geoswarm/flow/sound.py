"""The mark of events whose geometry passed validation unchanged, so that no later stage checks it again.

An event keeps its geometry as it came, and every stage that needs the area reads it. Checking takes several times as
long as reading, and an area may meet many partitions. The mark is a column from validation to the matcher.
"""

import pyarrow as pa

from geoswarm.model import GEOMETRY

SOUND = pa.field("_sound", pa.bool_(), nullable=False)
"""Whether the geometry is plain WKB (`core/shapes/wkb.py`) that was accepted unchanged."""


def marked_schema(events: pa.Schema) -> pa.Schema:
    """The columns of events after validation: with the mark, if events may be areas."""
    return events.append(SOUND) if GEOMETRY.name in events.names else events


def drop_mark(events: pa.RecordBatch) -> pa.RecordBatch:
    """The events without the mark."""
    return events.drop_columns([SOUND.name]) if SOUND.name in events.schema.names else events
