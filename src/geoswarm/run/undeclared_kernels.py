"""The part of a JSON object that is not declared, as JSON text: a loop over bytes, which copies what it does not leave
out. `undeclared.py` has the rules, and the same in plain Python.

Objects are JSON already: they have been parsed. So it only looks for where keys and values end.

    {"trip": {"id": 7, "fare": 9.5}, "lng": 2.35, "on": [1, 2]}        declared: trip.id, lng
    ─────────────────────────────────────────────────────────► {"trip":{"fare": 9.5},"on": [1, 2]}
"""

import numpy as np

from geoswarm.core.arrays.jit import Bools, Bytes, Ints, kernel

_BLANKS = (32, 9, 10, 13)
_QUOTE, _ESCAPE, _COMMA, _COLON = 34, 92, 44, 58
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 123, 125, 91, 93
LEFT_OUT = -1
"""Where a name of a tree leads that is declared; others lead to a node."""


@kernel
def copy_undeclared(
    data: Bytes, begins: Ints, ends: Ints, names: Bytes, edges: Ints, firsts: Ints, out: Bytes, out_ends: Ints
) -> Bools:
    """Write the undeclared part of each object to `out`, and where it ends to `out_ends`; nothing if there is none. The
    declared names are a tree: edges firsts[n]:firsts[n + 1] lead on from node n, each with the begin and the end of its
    name in `names`, and the node that it leads to. Returns which objects have a key with an escape, and are left for
    others."""
    odd = np.zeros(len(begins), np.bool_)
    depth_max = len(firsts) + 1
    nodes, counts, starts = np.zeros(depth_max, np.int64), np.zeros(depth_max, np.int64), np.zeros(depth_max, np.int64)
    to = 0
    for number in range(len(begins)):
        at, end, begin_to = begins[number], ends[number], to
        while at < end and data[at] != _OPEN_OBJECT:
            at += 1
        at += 1
        depth = 0
        nodes[0], counts[0], starts[0] = 0, 0, to
        if to < len(out):
            out[to] = _OPEN_OBJECT
        to += 1
        while at < end and depth >= 0:
            byte = data[at]
            if byte == _CLOSE_OBJECT:
                at += 1
                if counts[depth]:
                    out[to] = _CLOSE_OBJECT
                    to += 1
                else:
                    to = starts[depth]
                    if depth:
                        counts[depth - 1] -= 1
                depth -= 1
                continue
            if byte != _QUOTE:  # a blank or a comma
                at += 1
                continue
            first = at + 1
            at = first
            while at < end and data[at] != _QUOTE:
                if data[at] == _ESCAPE:
                    odd[number] = True
                    at += 1
                at += 1
            last = at
            if odd[number]:
                break
            target = _find_name(data, first, last, names, edges, firsts, nodes[depth])
            at += 1
            while at < end and (data[at] in _BLANKS or data[at] == _COLON):
                at += 1
            if target > 0 and data[at] == _OPEN_OBJECT:
                counts[depth] += 1
                depth += 1
                nodes[depth], counts[depth], starts[depth] = target, 0, to
                if counts[depth - 1] > 1:
                    out[to] = _COMMA
                    to += 1
                to = _copy(data, first - 1, last + 1, out, to)
                out[to], out[to + 1] = _COLON, _OPEN_OBJECT
                to += 2
                at += 1
                continue
            value_end = _skip_value(data, at, end)
            if target == _NOT_FOUND:
                if counts[depth]:
                    out[to] = _COMMA
                    to += 1
                counts[depth] += 1
                to = _copy(data, first - 1, last + 1, out, to)
                out[to] = _COLON
                to = _copy(data, at, value_end, out, to + 1)
            at = value_end
        if odd[number] or depth >= 0:
            to = begin_to
        out_ends[number] = to
    return odd


_NOT_FOUND = -2


@kernel
def _find_name(data: Bytes, first: int, last: int, names: Bytes, edges: Ints, firsts: Ints, node: int) -> int:
    for edge in range(firsts[node], firsts[node + 1]):
        begin, end = edges[3 * edge], edges[3 * edge + 1]
        if end - begin != last - first:
            continue
        same = True
        for i in range(last - first):
            if data[first + i] != names[begin + i]:
                same = False
                break
        if same:
            return edges[3 * edge + 2]  # type: ignore[no-any-return]
    return _NOT_FOUND


@kernel
def _skip_value(data: Bytes, at: int, end: int) -> int:
    """Where the value ends that begins here, without the blanks behind it."""
    depth, quoted, last = 0, False, at
    while at < end:
        byte = data[at]
        if quoted:
            if byte == _ESCAPE:
                at += 1
            elif byte == _QUOTE:
                quoted = False
        elif byte == _QUOTE:
            quoted = True
        elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
            depth += 1
        elif byte in (_CLOSE_OBJECT, _CLOSE_ARRAY):
            if depth == 0:
                return last
            depth -= 1
        elif byte == _COMMA and depth == 0:
            return last
        at += 1
        if byte not in _BLANKS:
            last = at
    return last


@kernel
def _copy(data: Bytes, first: int, end: int, out: Bytes, to: int) -> int:
    for at in range(first, end):
        out[to] = data[at]
        to += 1
    return to
