"""Reads the WKB polygons and points that most producers write straight into flat arrays, without GEOS.

Little-endian, two dimensions, no SRID; a polygon or a multi-polygon whose rings are closed. `are_plain` checks every
count and the last byte, so that `decode_wkb` need not. `checks.py` decides whether a polygon is valid, and GEOS reads
every other form.

    01 | 3 | rings  | vertices x y x y ... | vertices x y ...        polygon
    01 | 6 | parts  | 01 3 rings ... | 01 3 rings ...                multi-polygon
"""

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.buffers import ByteRows, rows_of
from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints, inner, kernel
from geoswarm.core.arrays.threads import run_in_pieces
from geoswarm.core.shapes.shapes import Shapes

POLYGON, MULTIPOLYGON = 3, 6
POINT_HEAD = b"\x01\x01\0\0\0"
HEADER_BYTES, COUNT_BYTES, VERTEX_BYTES = 5, 4, 16


def are_plain(column: pa.Array) -> Bools:
    """Which rows of a binary or string column `decode_wkb` can read, as GEOS would."""
    return _are_plain(_rows(column))


def decode_wkb(column: pa.Array) -> Shapes:
    """The shapes of rows that are plain."""
    rows = _rows(column)

    def count(first: int, end: int) -> tuple[int, ...]:
        return first, *_count_all(_some(rows, first, end))

    counted = run_in_pieces(count, len(rows.begins), len(rows.data) // VERTEX_BYTES)
    ends = np.cumsum([counts for _, *counts in counted], axis=0)
    places = dict(zip((first for first, *_ in counted), [(0, 0, 0), *map(tuple, ends[:-1].tolist())], strict=True))
    of_rows, of_parts, of_rings = (np.zeros(n + 1, np.int64) for n in (len(rows.begins), *ends[-1, :2].tolist()))
    xy = np.empty(ends[-1, 2] * VERTEX_BYTES, np.uint8)

    def fill(first: int, end: int) -> None:
        part, ring, vertex = places[first]
        offsets = of_rows[first : end + 1], of_parts[part:], of_rings[ring:]
        _fill(_some(rows, first, end), part, ring, vertex, *offsets, xy)

    run_in_pieces(fill, len(rows.begins), len(rows.data) // VERTEX_BYTES)
    return Shapes(of_rows, of_parts, of_rings, xy.view(np.float64).reshape(-1, 2), np.empty(0))


def _some(rows: ByteRows, first: int, end: int) -> ByteRows:
    return rows._replace(begins=rows.begins[first:end], ends=rows.ends[first:end])


def decode_points(column: pa.Array) -> tuple[Ints, Floats]:
    """The rows that are points, finite, and in the same form; and their places, (n, 2)."""
    rows = _rows(column)
    sized = np.flatnonzero(rows.ends - rows.begins == len(POINT_HEAD) + VERTEX_BYTES)
    raw = rows.data[rows.begins[sized, None] + np.arange(len(POINT_HEAD) + VERTEX_BYTES)]
    are_points = (raw[:, : len(POINT_HEAD)] == np.frombuffer(POINT_HEAD, np.uint8)).all(axis=1)
    xy = np.ascontiguousarray(raw[:, len(POINT_HEAD) :]).view("<f8")
    are_points &= np.isfinite(xy).all(axis=1)
    return sized[are_points], xy[are_points]


def _rows(column: pa.Array) -> ByteRows:
    wide = column.type in (pa.large_binary(), pa.large_string())
    return rows_of(column.view(pa.large_string() if wide else pa.string()))


@inner
def _number(data: Bytes, at: int) -> int:
    number = 0
    for k in range(COUNT_BYTES):
        number |= int(np.int64(data[at + k])) << (8 * k)  # numba makes floats of signed with unsigned numbers
    return number


@kernel
def _are_plain(rows: ByteRows) -> Bools:
    plain = np.zeros(len(rows.begins), np.bool_)
    for i in range(len(plain)):
        at, end = rows.begins[i], rows.ends[i]
        if end - at < HEADER_BYTES + COUNT_BYTES or rows.data[at] != 1:
            continue
        kind = _number(rows.data, at + 1)
        if kind == MULTIPOLYGON:
            parts = _number(rows.data, at + HEADER_BYTES)
            at += HEADER_BYTES + COUNT_BYTES
        elif kind == POLYGON:
            parts = 1
        else:
            continue
        good = parts > 0
        for _ in range(parts):
            good &= at + HEADER_BYTES + COUNT_BYTES <= end and rows.data[at] == 1
            good = good and _number(rows.data, at + 1) == POLYGON
            if not good:
                break
            rings = _number(rows.data, at + HEADER_BYTES)
            at += HEADER_BYTES + COUNT_BYTES
            good = rings > 0  # an empty part or hole is for GEOS
            for _ in range(rings):
                good &= at + COUNT_BYTES <= end
                if not good:
                    break
                vertices = _number(rows.data, at)
                at += COUNT_BYTES
                last = at + VERTEX_BYTES * (vertices - 1)
                good = vertices >= 4 and last + VERTEX_BYTES <= end and _are_same(rows.data, at, last)
                at = last + VERTEX_BYTES
        plain[i] = good and at == end
    return plain


@inner
def _are_same(data: Bytes, one: int, other: int) -> bool:
    for k in range(VERTEX_BYTES):  # noqa: SIM110 - numba has no all()
        if data[one + k] != data[other + k]:
            return False
    return True


@inner
def _parts_of(rows: ByteRows, row: int) -> tuple[int, int]:
    """Where the first polygon of a plain row begins, and how many there are."""
    at = rows.begins[row]
    if _number(rows.data, at + 1) == MULTIPOLYGON:
        return at + HEADER_BYTES + COUNT_BYTES, _number(rows.data, at + HEADER_BYTES)
    return at, 1


@kernel
def _count_all(rows: ByteRows) -> tuple[int, int, int]:
    """Parts, rings and vertices of all rows together."""
    all_parts, all_rings, all_vertices = 0, 0, 0
    for i in range(len(rows.begins)):
        at, parts = _parts_of(rows, i)
        all_parts += parts
        for _ in range(parts):
            rings = _number(rows.data, at + HEADER_BYTES)
            at += HEADER_BYTES + COUNT_BYTES
            all_rings += rings
            for _ in range(rings):
                vertices = _number(rows.data, at)
                at += COUNT_BYTES + VERTEX_BYTES * vertices
                all_vertices += vertices
    return all_parts, all_rings, all_vertices


@kernel
def _fill(
    rows: ByteRows,
    parts_before: int,
    rings_before: int,
    vertex: int,
    part_offsets: Ints,
    ring_offsets: Ints,
    vertex_offsets: Ints,
    xy: Bytes,
) -> None:
    """Write the offsets of `Shapes` behind those of the rows before, and copy the vertices byte by byte: they need not
    be aligned."""
    part, ring = 0, 0
    for i in range(len(rows.begins)):
        at, parts = _parts_of(rows, i)
        for _ in range(parts):
            rings = _number(rows.data, at + HEADER_BYTES)
            at += HEADER_BYTES + COUNT_BYTES
            for _ in range(rings):
                vertices = _number(rows.data, at)
                at += COUNT_BYTES
                xy[VERTEX_BYTES * vertex : VERTEX_BYTES * (vertex + vertices)] = rows.data[
                    at : at + VERTEX_BYTES * vertices
                ]
                at += VERTEX_BYTES * vertices
                vertex += vertices
                ring += 1
                vertex_offsets[ring] = vertex
            part += 1
            ring_offsets[part] = rings_before + ring
        part_offsets[i + 1] = parts_before + part
