"""Open a segment from its two files, and rebuild its index where it is lost, damaged or of an older kind."""

from geoswarm.core.space.grid import Grid
from geoswarm.core.subscriptions.attribute_kind import Arrays
from geoswarm.core.subscriptions.attributes import ATTRIBUTES
from geoswarm.core.subscriptions.subs import Subs
from geoswarm.errors import CorruptState
from geoswarm.store.segments.build_index import (
    derive_index,
    read_cells,
    read_demands,
    read_regions_index,
    read_text_index,
)
from geoswarm.store.segments.segment import SEGMENTS_FOLDER, Segment
from geoswarm.store.segments.write import records_of
from geoswarm.store.storage import Storage


def open_segment(storage: Storage, name: str) -> Segment:
    records = storage.map_arrays(f"{SEGMENTS_FOLDER}/{name}.records")
    return _segment_of(name, records, storage.map_arrays(f"{SEGMENTS_FOLDER}/{name}.index"))


def segment_in_memory(grid: Grid, subs: Subs) -> Segment:
    """Subscriptions that are in no file; at least one."""
    records = records_of(grid, subs)
    return _segment_of("in memory", records, derive_index(grid, records))


def _segment_of(name: str, records: Arrays, index: Arrays) -> Segment:
    return Segment(
        records["ids"],
        records["ids_sorted"],
        records["order_by_id"],
        {attribute.name: attribute.open(records) for attribute in ATTRIBUTES},
        read_cells(name, index),
        read_text_index(name, records, index),
        read_regions_index(records, index),
        read_demands(name, records, index),
    )


def repair_index(storage: Storage, grid: Grid, name: str) -> bool:
    """Rebuild an index that is lost, damaged or of an older kind from its records. Returns whether it was rebuilt;
    raises if the records are damaged."""
    records = storage.map_arrays(f"{SEGMENTS_FOLDER}/{name}.records")
    try:
        index = storage.map_arrays(f"{SEGMENTS_FOLDER}/{name}.index")
        read_cells(name, index)
        read_text_index(name, records, index)
        read_demands(name, records, index)
        return False
    except CorruptState:
        storage.write_arrays(f"{SEGMENTS_FOLDER}/{name}.index", derive_index(grid, records))
        storage.forget(f"{SEGMENTS_FOLDER}/{name}.index")
        return True
