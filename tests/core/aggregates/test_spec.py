"""What a subscription counts: texts are read, printed alike, and refused at the character that is wrong."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoswarm.core.aggregates.spec import (
    COLUMN_CHARS_MAX,
    EVENTS_MAX,
    LENGTH_MS_MAX,
    PANES_MAX,
    TEXT_CHARS_MAX,
    TOP_MAX,
    Aggregate,
    AggregateSpec,
    Window,
    parse_spec,
    read_aggregate,
    read_group_by,
    read_spec,
    read_window,
)
from geoswarm.errors import InputError

MINUTE_US = 60_000_000

NAMES = st.text(min_size=1, max_size=12).filter(lambda name: "\x00" not in name)
ARGUMENTS = {"quantile": st.floats(0, 1).map(lambda rank: abs(rank)), "top": st.integers(1, TOP_MAX).map(float)}


@st.composite
def aggregates(draw: st.DrawFn) -> Aggregate:
    function = draw(st.sampled_from(["count", "sum", "avg", "min", "max", "distinct", "quantile", "top"]))
    if function == "count":
        return Aggregate(function, None, None)
    return Aggregate(function, draw(NAMES), draw(ARGUMENTS[function]) if function in ARGUMENTS else None)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    kind = draw(st.sampled_from(["tumbling", "sliding", "count", "session"]))
    if kind == "count":
        return Window(kind, 0, 0, draw(st.integers(1, EVENTS_MAX)))
    if kind == "sliding":
        slide_us = draw(st.integers(1, LENGTH_MS_MAX // PANES_MAX)) * 1000
        return Window(kind, slide_us * draw(st.integers(1, PANES_MAX)), slide_us, 0)
    length_us = draw(st.integers(1, LENGTH_MS_MAX)) * 1000
    return Window(kind, length_us, 0 if kind == "session" else length_us, 0)


@given(aggregates(), windows(), st.none() | NAMES, st.sampled_from([None, "count > 100", "value < 3 OR count = 7"]))
def test_what_is_printed_reads_as_the_same(
    aggregate: Aggregate, window: Window, group_by: str | None, when: str | None
) -> None:
    when = None if aggregate.function == "top" else when
    spec = read_spec(str(aggregate), str(window), group_by, when)
    assert spec == AggregateSpec(aggregate, window, group_by, when) == parse_spec(spec.text)
    assert str(spec.aggregate) == str(aggregate)
    assert str(spec.window) == str(window)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("count", Aggregate("count", None, None)),
        (" SUM ( speed )", Aggregate("sum", "speed", None)),
        ('avg("top speed")', Aggregate("avg", "top speed", None)),
        ('min("a ""b""")', Aggregate("min", 'a "b"', None)),
        ("Max(größe)", Aggregate("max", "größe", None)),
        ("distinct(object_id)", Aggregate("distinct", "object_id", None)),
        ("quantile(speed, 0.95)", Aggregate("quantile", "speed", 0.95)),
        ("quantile(speed, 1)", Aggregate("quantile", "speed", 1.0)),
        ("top(kind,10)", Aggregate("top", "kind", 10.0)),
    ],
)
def test_an_aggregate_is_read(text: str, meant: Aggregate) -> None:
    assert read_aggregate(text) == meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tumbling(60 s)", Window("tumbling", MINUTE_US, MINUTE_US, 0)),
        ("tumbling(60s)", Window("tumbling", MINUTE_US, MINUTE_US, 0)),
        ("Sliding( 5 min , 60 s )", Window("sliding", 5 * MINUTE_US, MINUTE_US, 0)),
        ("sliding(1 day, 1 minute)", Window("sliding", 1440 * MINUTE_US, MINUTE_US, 0)),
        ("session(0.5 h)", Window("session", 30 * MINUTE_US, 0, 0)),
        ("session(250 ms)", Window("session", 250_000, 0, 0)),
        ("count(1_000)", Window("count", 0, 0, 1000)),
        ("tumbling(366 days)", Window("tumbling", LENGTH_MS_MAX * 1000, LENGTH_MS_MAX * 1000, 0)),
    ],
)
def test_a_window_is_read(text: str, meant: Window) -> None:
    assert read_window(text) == meant


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("", 1, "the end is no aggregate: write count, sum(c)"),
        ("median(speed)", 1, "median is no aggregate: write count, sum(c), avg(c)"),
        ("count(*)", 6, "count counts events and has no column: write count, or distinct(c)"),
        ("count 5", 7, "5 follows a complete aggregate: leave it out"),
        ("sum", 4, "the end stands where ( is wanted"),
        ("sum()", 5, ") stands where a column is wanted: write its name"),
        ("sum(speed", 10, "the end stands where ) is wanted"),
        ("sum(speed) > 3", 12, "> follows a complete aggregate"),
        ("sum(speed + 1)", 11, "+ stands where ) is wanted"),
        ('sum("speed)', 5, '" stands where a column is wanted'),
        ("quantile(speed)", 15, ") stands where , is wanted"),
        ("quantile(speed, 95)", 17, "a rank of 95: write a number from 0 to 1; 0.5 is the median"),
        ("quantile(speed, -0.5)", 17, "- stands where a rank is wanted"),
        ("top(kind, 0)", 11, "0 is no number of values: write a whole number from 1 to 100"),
        ("top(kind, 2.5)", 11, "2.5 is no number of values"),
        (f"sum({'c' * (COLUMN_CHARS_MAX + 1)})", 5, "a column of 257 characters: use a name of at most 256"),
    ],
)
def test_a_wrong_aggregate_is_refused_at_its_character(text: str, position: int, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"at character {position} of the aggregate: {why}")):
        read_aggregate(text)


@pytest.mark.parametrize(
    ("text", "position", "why"),
    [
        ("60 s", 1, "60 is no window: write tumbling(60 s), sliding(300 s, 60 s), count(1000) or session(30 s)"),
        ("tumbling(60)", 12, ") is no unit of time: write ms, s, min, h or day behind a number"),
        ("tumbling(60 weeks)", 13, "weeks is no unit of time"),
        ("tumbling(0 s)", 10, "0 s is no length of a window: use whole milliseconds, from 1 ms to 366 days"),
        ("tumbling(0.0005 s)", 10, "0.0005 s is no length"),
        ("session(367 day)", 9, "367 day is no length"),
        ("sliding(300 s)", 14, ") stands where , is wanted"),
        (
            "sliding(300 s, 70 s)",
            16,
            "a length of 300 s is no multiple of a slide of 70 s: choose a slide that divides",
        ),
        ("sliding(60 s, 300 s)", 15, "a length of 60 s is no multiple of a slide of 300 s"),
        ("sliding(1 day, 1 s)", 16, "86400 slides in one length, limit 1440: choose a longer slide"),
        ("count(0)", 7, "0 is no number of events: write a whole number from 1 to 1000000000"),
        ("count(10 s)", 10, "s stands where ) is wanted"),
        ("tumbling(60 s) x", 16, "x follows a complete window: leave it out"),
    ],
)
def test_a_wrong_window_is_refused_at_its_character(text: str, position: int, why: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"at character {position} of the window: {why}")):
        read_window(text)


def test_texts_have_a_length() -> None:
    with pytest.raises(InputError, match=f"1100 characters of aggregate, limit {TEXT_CHARS_MAX}"):
        read_aggregate("count" + " " * 1095)
    with pytest.raises(InputError, match=f"group_by has 300 characters, limit {COLUMN_CHARS_MAX}"):
        read_group_by("k" * 300)
    with pytest.raises(InputError, match="group_by is empty: name a column"):
        read_group_by("")
    with pytest.raises(InputError, match="a condition `when` of 2000 characters"):
        read_spec("count", "count(5)", None, "count > 1" + " " * 1991)


def test_a_condition_is_on_the_answer() -> None:
    assert read_spec("avg(v)", "count(5)", None, " avg>=3.5 and COUNT > 10".replace("COUNT", "count")).when == (
        "avg >= 3.5 AND count > 10"
    )
    with pytest.raises(InputError, match="at character 1 of the condition: there is no 'speed'"):
        read_spec("avg(v)", "count(5)", None, "speed > 3")
    for when, position in (("value > 3", 1), ("count > top", 9)):
        with pytest.raises(InputError, match=f"at character {position} of the condition: an answer of top is a list"):
            read_spec("top(v, 3)", "count(5)", None, when)


def test_the_condition_is_no_part_of_the_state() -> None:
    one = read_spec("SUM(v)", "tumbling(1 min)", "kind", "sum > 3")
    other = read_spec("sum(v)", "tumbling(60 s)", "kind")
    assert one.state_key == other.state_key
    assert one.text != other.text
    different = [
        read_spec("sum(v)", "tumbling(61 s)", "kind"),
        read_spec("sum(v)", "tumbling(60 s)"),
        read_spec("sum(v)", "sliding(60 s, 60 s)", "kind"),
        read_spec("avg(v)", "tumbling(60 s)", "kind"),
    ]
    assert len({spec.state_key for spec in (one, other, *different)}) == 1 + len(different)
