"""Which messages are exactly one JSON object, as far as brackets and quotes show: loops over bytes.

Arrow reads many objects from one buffer, and takes no notice of where one message ends and the next begins: two halves
make a whole for it. So every message that it gets has passed here; what is within the brackets is Arrow's to check.
"""

from geoswarm.core.arrays.jit import Bools, Bytes, Ints, kernel

_BLANKS = (32, 9, 10, 13)
_QUOTE, _ESCAPE, _COMMA = 34, 92, 44
_PLUS, _NINE, _UPPER_E, _LOWER_E = 43, 57, 69, 101
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 123, 125, 91, 93


@kernel
def find_objects(data: Bytes, offsets: Ints, depth_max: int, digits_max: int, sound: Bools) -> None:
    """Set `sound` for each message, of which `offsets` has the begin, and at last the end: it begins with an opening
    bracket, ends with the closing one that belongs to it, is nested no deeper than `depth_max`, and has no number of
    more than `digits_max` characters."""
    for message in range(len(offsets) - 1):
        at, end = offsets[message], offsets[message + 1]
        while at < end and data[at] in _BLANKS:
            at += 1
        while end > at and data[end - 1] in _BLANKS:
            end -= 1
        depth, digits, quoted, ok = 0, 0, False, at < end and data[at] == _OPEN_OBJECT
        while ok and at < end:
            byte = data[at]
            if quoted:
                if byte == _ESCAPE:
                    at += 1
                elif byte == _QUOTE:
                    quoted = False
            elif _PLUS <= byte <= _NINE or byte in (_UPPER_E, _LOWER_E):
                digits = 0 if byte == _COMMA else digits + 1
                ok = digits <= digits_max
            elif byte == _QUOTE:
                quoted, digits = True, 0
            elif byte in (_OPEN_OBJECT, _OPEN_ARRAY):
                depth += 1
                ok = depth <= depth_max
            elif byte in (_CLOSE_OBJECT, _CLOSE_ARRAY):
                depth -= 1
                ok = depth > 0 or at == end - 1
            at += 1
        sound[message] = ok and depth == 0 and not quoted and at == end
