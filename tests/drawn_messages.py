"""Messages of every kind for Hypothesis to draw: JSON objects with values of right and wrong types, and broken ones."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import TIMESTAMP

COLUMNS = pa.schema(
    [
        ("event_id", pa.int64()),
        ("ts", TIMESTAMP),
        ("x", pa.float64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("day", pa.date32()),
        (MALFORMED, pa.string()),
    ]
)
DDL = "event_id long, ts timestamp, x double, text string, flag boolean, small int, day date"
_TIMES = (
    *(
        "2026-01-01T10:30:05Z",
        "2026-01-01T10:30:05.123456Z",
        "2026-01-01 10:30:05",
        "2026-01-01T10:30:05.1234567+01:00",
    ),
    *("2026-1-1 1:2:3", "2026-01-01", "2026-01", "2026-01-01T10", "2026-01-01T10:30", "2026-01-01T10:30Z"),
    *("2026-01-01T10:30:05+18:00", "2026-01-01T10:30:05+19:00", "2026-01-01T10:30:05-0830", "2026-01-01T10:30:05 UTC"),
    *(
        "2026-01-01T10:30:05GMT+2",
        "2026-01-01T10:30:05 Europe/Paris",
        " 2026-01-01T10:30:05Z ",
        "2026-02-30",
        "20260101",
    ),
    *("2026-01-01T24:00:00Z", "2026-01-01T10:30:60Z", "2026-01-01t10:30:05Z", "2026-01-01T10:30:05z", "2026/01/01"),
)
_LITERALS = (
    *("1", "-1", "0", "1.0", "1.50", "1e3", "1E400", "1e-400", "1e10", "0.0001", "123456789.123456789", "2147483648"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775809",
        "1767225600",
        "01",
        "+1",
        ".5",
        "1.",
        "0x1",
    ),
    *(
        '"1"',
        '""',
        '" "',
        '"NaN"',
        '"+INF"',
        '"INF"',
        '"-Infinity"',
        "NaN",
        "-Infinity",
        "true",
        "false",
        "null",
        '"true"',
    ),
    *(
        "[]",
        "[1, 2]",
        "{}",
        '{"a": 1, "b": [1.50, null, "é", true]}',
        r'"a\u00e9b"',
        r'"\ud83d\ude00"',
        r'"\ud83d"',
        "tru",
    ),
    *(r'"\n\t\"\\\/"', r'"\q"', '"tab\t"', '"line\n"', '"é\u2028"', r'"\u0000"', '"\x7f"'),
)
_NAMES = (*COLUMNS.names[:-1], "other", "", r"event\u005fid", "X", MALFORMED)
_VALUES = st.one_of(
    st.sampled_from(_LITERALS),
    st.sampled_from(_TIMES).map(json.dumps),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(-1e6, 1e6).map(lambda x: repr(round(x, 4))),  # with more digits, Java 17 writes other ones than Java 21
    st.text(max_size=8).map(json.dumps),
)
_OBJECTS = st.lists(st.tuples(st.sampled_from(_NAMES), _VALUES), max_size=4).map(
    lambda pairs: "{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}"
)
_WHOLE = st.fixed_dictionaries(
    {
        "event_id": st.integers(-(2**63), 2**63 - 1),
        "ts": st.datetimes().filter(lambda t: 1900 < t.year < 2100).map(lambda t: t.isoformat() + "Z"),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "text": st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8),
        "flag": st.booleans(),
    }
).map(json.dumps)
_PIECES = ("{", "}", '"', ",", ":", "[", "]", "\\", " ", "1", "-", ".", "e", "null", "\n", "é", '{"x": 1}')


@st.composite
def _broken(draw: Any) -> str:
    text = draw(_OBJECTS | _WHOLE)
    at, cut = draw(st.integers(0, len(text))), draw(st.integers(0, 3))
    return str(text[:at] + draw(st.sampled_from(_PIECES)) + text[at + cut :])


MESSAGES = st.one_of(
    _WHOLE.map(str.encode),
    _OBJECTS.map(str.encode),
    _broken().map(str.encode),
    st.sampled_from([b"", b" \n", b"null", b"1", b"[]", b"{}", b"{ }", b"}{", b'{"x": 1}{', b'"{}"', None]),
    st.binary(max_size=6),
)


def comparable(table: pa.Table) -> list[dict[str, Any]]:
    """The rows, with numbers for times and bytes for texts, and a text for NaN, which is not equal to itself."""
    kinds = {"ts": pa.int64(), "day": pa.int32(), "text": pa.binary(), MALFORMED: pa.binary()}
    for i, name in enumerate(table.schema.names):
        if name in kinds:
            table = table.set_column(i, name, table.column(name).cast(kinds[name]))
    rows: list[dict[str, Any]] = table.to_pylist()
    return [row | {"x": "NaN" if row["x"] != row["x"] else row["x"]} for row in rows]
