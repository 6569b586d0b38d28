"""A first pass over the bytes of geometries: the form, the number of vertices, the depth.

It builds nothing, so hostile input costs one scan: GEOS reads nested collections by recursion and crashes on a deep
one, and a count in the bytes may promise more vertices than there are. GEOS reads what passes (`parse.py`).
"""

from typing import NamedTuple

import numpy as np

from geoswarm.core.arrays.buffers import ByteRows
from geoswarm.core.arrays.jit import Ints, inner, kernel

NULL, WKB, HEX, JSON, WKT, CIRCLE, UNKNOWN_FORM = range(7)
"""Forms. WKT may have SRID= before it."""
NESTED_MAX = 16
"""The greatest depth of nested collections and brackets; a multi-polygon in a feature has six."""


TOO_DEEP, UNREADABLE = -1, -2
"""Values instead of a number of vertices. Unreadable: a kind that is none of OGC's first seven, or brackets that close
before they open. GEOS might read on where this survey cannot follow, so it is not given any of these."""


class Survey(NamedTuple):
    forms: Ints
    vertices: Ints
    """Exact for WKB and WKT, a lower bound for GeoJSON and hexadecimal; or TOO_DEEP, or UNREADABLE."""
    srids: Ints
    """0: none is given."""


@kernel
def survey(rows: ByteRows) -> Survey:
    n = len(rows.begins)
    found = Survey(np.empty(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64))
    for i in range(n):
        begin, end = rows.begins[i], rows.ends[i]
        while begin < end and rows.data[begin] in (32, 9, 10, 13):
            begin += 1
        found.forms[i] = form = _form(rows, begin, end)
        if form == WKB:
            found.vertices[i], found.srids[i] = _walk(rows, begin, end)
        elif form == HEX:
            found.vertices[i] = (end - begin) // 64  # if all have Z and M; counted when they are bytes
        elif form in (JSON, WKT):
            found.vertices[i] = _count(rows, begin, end, form)
    return found


@inner
def _form(rows: ByteRows, begin: int, end: int) -> int:
    if begin == end:
        return UNKNOWN_FORM
    first = rows.data[begin]
    if first <= 1:
        return WKB
    if first == 48:  # a byte order of 00 or 01
        return HEX
    if first == 123:  # {
        return JSON
    letter = first | 32
    if letter == 99 and end - begin > 3 and rows.data[begin + 1] | 32 == 105 and rows.data[begin + 3] | 32 == 99:
        # C I R C: CIRCLE goes on with L, CIRCULARSTRING with U
        return CIRCLE if end - begin > 4 and rows.data[begin + 4] | 32 == 108 else WKT
    return WKT if 97 <= letter <= 122 else UNKNOWN_FORM


@inner
def _count(rows: ByteRows, begin: int, end: int, form: int) -> int:
    commas, depth, at = 0, 0, begin
    quoted = False
    while at < end:
        c = rows.data[at]
        at += 1
        if form == JSON and c == 34:  # "
            quoted = not quoted
        elif quoted:
            at += c == 92  # what follows a backslash is text, too
        elif c == 44:
            commas += 1
        elif c in (40, 91, 123):
            depth += 1
            if depth > NESTED_MAX:
                return TOO_DEEP
        elif c in (41, 93, 125):
            depth -= 1
            if depth < 0:
                return UNREADABLE
    return commas + 1 if form == WKT else commas // 3


@inner
def _integer(rows: ByteRows, at: int, little: int) -> int:
    value = 0
    for k in range(4):
        value |= int(rows.data[at + k]) << (8 * k if little else 24 - 8 * k)
    return value


@kernel
def _walk(rows: ByteRows, begin: int, end: int) -> tuple[int, int]:
    """Vertices and SRID. Bytes that end too soon end the walk: GEOS reports what is wrong."""
    left = np.zeros(NESTED_MAX + 1, np.int64)  # members still to come, at each depth
    left[0], depth, at, vertices, srid = 1, 0, begin, 0, 0
    while depth >= 0:
        if left[depth] == 0:
            depth -= 1
            continue
        left[depth] -= 1
        if at + 5 > end:
            break
        little = rows.data[at]
        kind = _integer(rows, at + 1, little)
        at += 5
        iso = (kind & 0xFFFF) // 1000
        if little > 1 or (kind >> 16) & 0x1FFF or iso > 3 or not 1 <= (kind & 0xFFFF) % 1000 <= 7:
            return UNREADABLE, srid
        dimensions = 2 + ((kind >> 31) | (iso & 1)) + (((kind >> 30) & 1) | (iso >> 1))
        if (kind >> 29) & 1:
            if at + 4 > end:
                break
            srid = _integer(rows, at, little)
            at += 4
        kind = (kind & 0xFFFF) % 1000
        if kind == 1:
            vertices += 1
            at += 8 * dimensions
            continue
        if at + 4 > end:
            break
        count = _integer(rows, at, little)
        at += 4
        if kind == 2:
            vertices += count
            at += 8 * dimensions * count
        elif kind == 3:
            for _ in range(count):
                if at + 4 > end:
                    break
                ring = _integer(rows, at, little)
                vertices += ring
                at += 4 + 8 * dimensions * ring
        else:
            depth += 1
            if depth > NESTED_MAX:
                return TOO_DEEP, srid
            left[depth] = count
    return vertices, srid
