"""Conditions on rows mean what SQL says, in any form; wrong ones are refused where they go wrong."""

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoswarm.core.text.grammar import NESTING_MAX
from geoswarm.core.where.clause import (
    And,
    Between,
    Clause,
    Column,
    Compare,
    In,
    IsNull,
    IsTrue,
    Like,
    Or,
    Value,
    join,
    negate,
)
from geoswarm.core.where.evaluate import chosen, truths
from geoswarm.core.where.read import TESTS_MAX, WHERE_CHARS_MAX, read_where
from geoswarm.core.where.types import check_where
from geoswarm.core.where.when import meets, read_when
from geoswarm.errors import InputError
from geoswarm.run.oracle.where import chosen_rows, truth

UNHURRIED = settings(deadline=None, max_examples=200)
T0 = datetime(2026, 3, 1, tzinfo=UTC)
NUMBERS = [0, 1, -1, 80, 80.5, -0.0, 0.1, 127, 128, -129, 255, 256, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**70)]
TEXTS = ["", "free", "Free", "id%le", "i_le", "idle", "ä", "it's", 'say "x"', "back\\slash", "two\nlines"]
TIMES = ["2026-03-01", "2026-03-01T00:00:00.000001", "2026-03-01T02:00+02:00", "1969-12-31", "2026-03-02"]


def column_of(kind: pa.DataType, rng: np.random.Generator, rows: int = 60) -> pa.Array:
    """Values at the edges of the type and of what conditions ask for, and nulls."""
    if pa.types.is_integer(kind):
        info = np.iinfo(kind.to_pandas_dtype())
        edges = [v for v in [*NUMBERS, info.min, info.max] if float(v).is_integer() and info.min <= int(v) <= info.max]
        pool: list[object] = [int(v) for v in edges]
    elif pa.types.is_floating(kind):
        pool = [float("nan"), float("inf"), -float("inf"), *map(float, NUMBERS)]
    elif pa.types.is_timestamp(kind):
        steps = [timedelta(), timedelta(microseconds=1), timedelta(days=1), timedelta(days=-30_000)]
        pool = [T0 + step for step in steps]
        if kind.unit in ("s", "ms"):
            pool.remove(T0 + steps[1])
    elif pa.types.is_date32(kind):
        pool = [date(2026, 3, 1), date(2026, 3, 2), date(1969, 12, 31)]
    elif pa.types.is_boolean(kind):
        pool = [True, False]
    else:
        pool = list(TEXTS)
    drawn = [None if rng.random() < 0.2 else pool[rng.integers(len(pool))] for _ in range(rows)]
    if pa.types.is_dictionary(kind):
        return pa.array(drawn, kind.value_type).dictionary_encode()
    return pa.array(drawn, kind)


KINDS = {
    "i8": pa.int8(),
    "u8": pa.uint8(),
    "i64": pa.int64(),
    "u64": pa.uint64(),
    "f32": pa.float32(),
    "f64": pa.float64(),
    "text": pa.string(),
    "long text": pa.large_string(),
    "in": pa.dictionary(pa.int32(), pa.string()),
    "flag": pa.bool_(),
    "flag2": pa.bool_(),
    "ts": pa.timestamp("us", tz="UTC"),
    "ts2": pa.timestamp("us", tz="UTC"),
    "ts_ms": pa.timestamp("ms"),
    "ts_ns": pa.timestamp("ns", tz="Europe/Paris"),
    "day": pa.date32(),
}
RNG = np.random.default_rng(11)
ROWS = pa.table({name: column_of(kind, RNG) for name, kind in KINDS.items()} | {"nothing": pa.nulls(60)})
EACH_ROW = ROWS.to_pylist()


def of(*names: str) -> st.SearchStrategy[Column]:
    return st.sampled_from(names).map(Column)


NUMBER_COLUMNS = of("i8", "u8", "i64", "u64", "f32", "f64", "nothing")
TEXT_COLUMNS = of("text", "long text", "in", "nothing")
TIME_COLUMNS = of("ts", "ts_ms", "ts_ns", "day", "nothing")
COMPARISONS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
SAME = st.sampled_from(["=", "<>"])
WRITTEN = st.one_of(st.sampled_from(NUMBERS), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
FAMILIES = [
    (NUMBER_COLUMNS, WRITTEN.map(Value)),
    (TEXT_COLUMNS, st.one_of(st.sampled_from(TEXTS), st.text(max_size=3)).map(Value)),
    (TIME_COLUMNS, st.sampled_from(TIMES).map(Value)),
]


def between(column: Column, values: list[Value]) -> Clause:
    return Between(column, *sorted(values, key=lambda value: value.given))


def drawn_tests() -> st.SearchStrategy[Clause]:
    found: list[st.SearchStrategy[Clause]] = []
    for columns, values in FAMILIES:
        found.append(st.builds(Compare, columns, COMPARISONS, values))
        found.append(st.builds(In, columns, st.lists(values, min_size=1, max_size=4).map(tuple)))
    for columns, values in FAMILIES[:2]:
        found.append(st.builds(between, columns, st.lists(values, min_size=2, max_size=2)))
    found += [
        st.builds(Compare, NUMBER_COLUMNS, COMPARISONS, NUMBER_COLUMNS),
        st.builds(Compare, TEXT_COLUMNS, COMPARISONS, TEXT_COLUMNS),
        st.builds(Compare, of("ts", "ts2"), COMPARISONS, of("ts", "ts2")),
        st.builds(Compare, of("flag", "flag2"), SAME, st.one_of(of("flag", "nothing"), st.booleans().map(Value))),
        st.builds(IsNull, of(*ROWS.column_names)),
        st.builds(IsTrue, of("flag", "nothing")),
        st.builds(Like, TEXT_COLUMNS, st.text("ab%_ä\\i", max_size=5).map(lambda t: Value(t.replace("\\", "\\%")))),
        st.builds(Like, TEXT_COLUMNS, st.sampled_from(["id%", "%e", "i_le", r"i\_le", r"%\%%", "%\n%"]).map(Value)),
    ]
    return st.one_of(found)


CLAUSES: st.SearchStrategy[Clause] = st.recursive(
    drawn_tests(),
    lambda inner: st.one_of(
        inner.map(negate),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: join(And, parts)),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: join(Or, parts)),
    ),
    max_leaves=6,
)


@UNHURRIED
@given(CLAUSES)
def test_columns_and_rows_give_the_same_truths(clause: Clause) -> None:
    check_where(clause, ROWS.schema)
    assert truths(clause, ROWS).to_pylist() == [truth(clause, row) for row in EACH_ROW]


@UNHURRIED
@given(CLAUSES)
def test_what_is_printed_reads_as_the_same_condition(clause: Clause) -> None:
    printed = str(clause)
    again = read_where(printed)
    assert str(again) == printed
    assert truths(again, ROWS).equals(truths(clause, ROWS))


ANY_COLUMN = of(*ROWS.column_names)
ANY_VALUE = st.one_of(WRITTEN, st.booleans(), st.sampled_from(TEXTS + TIMES)).map(Value)
ANY_TEST: st.SearchStrategy[Clause] = st.one_of(
    st.builds(Compare, ANY_COLUMN, COMPARISONS, st.one_of(ANY_COLUMN, ANY_VALUE)),
    st.builds(Between, ANY_COLUMN, ANY_VALUE, ANY_VALUE),
    st.builds(In, ANY_COLUMN, st.lists(ANY_VALUE, min_size=1, max_size=3).map(tuple)),
    st.builds(Like, ANY_COLUMN, st.just(Value("%e"))),
    st.builds(IsTrue, ANY_COLUMN),
)


@UNHURRIED
@given(ANY_TEST)
def test_any_test_is_refused_or_has_the_same_truths_in_columns_and_rows(test: Clause) -> None:
    try:
        check_where(test, ROWS.schema)
    except InputError:
        return
    assert truths(test, ROWS).to_pylist() == [truth(test, row) for row in EACH_ROW]


@UNHURRIED
@given(st.text("ab1. ()'\"<>=!%,-+\\\n", max_size=20) | st.text())
@example("a" * 5 + " = 'x'")
def test_any_text_is_read_or_refused_and_reads_again_as_it_is_printed(text: str) -> None:
    try:
        clause = read_where(text)
    except InputError:
        return
    assert read_where(str(clause)) == clause


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("speed>80", "speed > 80"),
        ("80<speed", "speed > 80"),
        ("-80.50 >= speed", "speed <= -80.5"),
        ("1e3 = speed or .5 != speed", "speed = 1000.0 OR speed <> 0.5"),
        ("speed > 80 AND status IN ('free', 'idle') AND NOT battery < 20", None),
        ("a = 1 and (b = 2 and c = 3) or (d = 4)", "a = 1 AND b = 2 AND c = 3 OR d = 4"),
        ("(a = 1 OR b = 2) AND NOT (c = 3 OR d = 4)", None),
        ("NOT NOT free", "free"),
        ("not a is null", "a IS NOT NULL"),
        ("NOT a IS NOT NULL", "a IS NULL"),
        ("a not between -1 and +2", "a NOT BETWEEN -1 AND 2"),
        ("a between 1 and 2 and b", "a BETWEEN 1 AND 2 AND b"),
        ("note NOT LIKE 'it''s %'", None),
        ('"in" = TRUE AND "a ""b""" = \'\'', None),
        ('"speed" = speed_limit', "speed = speed_limit"),
        ("geschwindigkeit = '' and größe = 1", "geschwindigkeit = '' AND \"größe\" = 1"),
    ],
)
def test_a_condition_has_one_printed_form(text: str, printed: str | None) -> None:
    assert str(read_where(text)) == (printed or text)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("", "an empty condition: write a test such as speed > 80, or leave it out"),
        (
            "a >",
            "at character 4 of the condition: the end stands where a number, a 'text' or a column is wanted",
        ),
        ("a > b > c", "at character 7 of the condition: > follows a complete test: join tests by AND or OR"),
        ("a = 1 b = 2", "at character 7 of the condition: b follows a complete test: join tests by AND or OR"),
        ("(a = 1", "at character 7 of the condition: the ( at character 1 is not closed: add a ), or AND or OR"),
        ("a = 1)", "at character 6 of the condition: ) closes nothing: add a ( before it or leave it out"),
        ("a = 'x", "at character 5 of the condition: ' is never closed: add a ' where it ends"),
        ("a && b", "at character 3 of the condition: & is no operator here: operators are AND, OR,"),
        ("a * 2 > 1", "at character 3 of the condition: * is no operator here"),
        ("a - 2 > 1", "at character 3 of the condition: - follows a complete test"),
        ("80", "at character 1 of the condition: 80 by itself is no test: compare it with a column"),
        ("1 < 2", "at character 3 of the condition: < has no column on either side: name a column on one of them"),
        (
            "a = NULL",
            "at character 5 of the condition: NULL is equal to nothing, not even to NULL: write IS NULL or IS NOT NULL",
        ),
        ("a IN (1, NULL)", "at character 10 of the condition: NULL is equal to nothing"),
        (
            "a IN 1",
            "at character 6 of the condition: IN is not followed by a list: write values in parentheses, with commas",
        ),
        ("a IN ()", "at character 7 of the condition: ) stands where a value behind IN ( is wanted"),
        ("a IN (1 2)", "at character 9 of the condition: the list of IN is never closed"),
        ("a IN (b)", "at character 7 of the condition: b is a column, where a value must be: write 'texts' in quotes"),
        (
            "a BETWEEN 1, 2",
            "at character 12 of the condition: BETWEEN lacks its AND: write BETWEEN the lowest AND the highest value",
        ),
        ("a LIKE 5", "at character 8 of the condition: LIKE 5 has no text to its right: write a pattern such as 'A%'"),
        ("a LIKE 'x\\'", "at character 8 of the condition: the pattern ends with a single backslash"),
        ("a IS 5", "at character 6 of the condition: IS is not followed by NULL"),
        ("a = 1 AND", "at character 10 of the condition: the end stands where a test such as speed > 80 is wanted"),
        (
            "a = 1 AND or = 2",
            'at character 11 of the condition: or stands where a test such as speed > 80 is wanted: write "or"',
        ),
        ("a = 1e999", "at character 5 of the condition: 1e999 is beyond the largest number: write one below 1.8e308"),
        ("a = " + "9" * 400, "at character 5 of the condition: " + "9" * 37 + "... is beyond the largest number"),
        (
            "(" * 65 + "a" + ")" * 65,
            f"at character 65 of the condition: parentheses and NOT more than {NESTING_MAX} deep",
        ),
        ("NOT " * 65 + "a", f"at character 257 of the condition: parentheses and NOT more than {NESTING_MAX} deep"),
        (
            " OR ".join(["a"] * 257),
            f"at character 1281 of the condition: more than {TESTS_MAX} tests: use IN for a list of values",
        ),
        ("a" * (WHERE_CHARS_MAX + 1), f"a condition of {WHERE_CHARS_MAX + 1} characters, limit {WHERE_CHARS_MAX}"),
    ],
)
def test_what_is_no_condition_is_refused_at_its_character(text: str, refusal: str) -> None:
    with pytest.raises(InputError) as refused:
        read_where(text)
    assert str(refused.value).startswith(refusal)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (
            "i64 = 1 AND i46 = 2",
            "at character 13 of the condition: there is no 'i46': did you mean 'i64'?; a text is written 'i46'",
        ),
        ('text = "free"', "at character 8 of the condition: there is no 'free': there are 'i8', 'u8'"),
        (
            "i64 > 'free'",
            "at character 7 of the condition: i64 has numbers, and 'free' is none: write a number such as 80",
        ),
        ("text > 5", "at character 8 of the condition: text has texts, and 5 is none: write a text such as 'free'"),
        ("flag IN (1)", "at character 10 of the condition: flag has booleans, and 1 is none: write TRUE or FALSE"),
        ("f64 = TRUE", "at character 7 of the condition: f64 has numbers, and TRUE is none"),
        ("flag > FALSE", "at character 1 of the condition: flag has booleans, which have no order: compare by = or <>"),
        ("flag BETWEEN FALSE AND TRUE", "at character 1 of the condition: flag has booleans, which have no order"),
        (
            "ts < 'yesterday'",
            "at character 6 of the condition: ts has times, and 'yesterday' is none: write a time such as '2026-01-31",
        ),
        ("ts < 5", "at character 6 of the condition: ts has times, and 5 is none"),
        (
            "ts < day",
            "at character 6 of the condition: ts is timestamp[us, tz=UTC] and day is date32[day]: compare",
        ),
        (
            "i64 = text",
            "at character 7 of the condition: i64 is int64 and text is string: compare",
        ),
        (
            "i64",
            "at character 1 of the condition: i64 has numbers, not booleans: compare it with a number",
        ),
        ("i64 LIKE '8%'", "at character 10 of the condition: i64 has numbers, and LIKE is for texts: compare by ="),
        ("i64 BETWEEN 9 AND 3", "at character 13 of the condition: BETWEEN 9 AND 3 is never true: swap them"),
        (
            "day BETWEEN '2026-03-02' AND '2026-03-01'",
            "at character 13 of the condition: BETWEEN '2026-03-02' AND '2026-03-01' is never true: swap them",
        ),
        (
            "geometry = 'x'",
            "at character 1 of the condition: geometry has the type binary, which cannot be compared: use IS NOT NULL",
        ),
    ],
)
def test_what_does_not_fit_the_columns_is_refused_at_its_character(text: str, refusal: str) -> None:
    schema = ROWS.schema.append(pa.field("geometry", pa.binary()))
    with pytest.raises(InputError) as refused:
        check_where(read_where(text), schema)
    assert str(refused.value).startswith(refusal)
    check_where(read_where("geometry IS NOT NULL"), schema)


def test_a_column_without_any_value_fits_everything_and_chooses_nothing() -> None:
    for text in (
        "nothing BETWEEN 'a' AND 5",
        "NOT nothing IN (1, 'a', TRUE)",
        "nothing LIKE 'a'",
        "NOT nothing",
        "nothing < ts",
    ):
        clause = read_where(text)
        check_where(clause, ROWS.schema)
        assert truths(clause, ROWS).to_pylist() == [None] * len(ROWS)


def test_the_rows_that_are_chosen_are_those_of_which_it_is_true() -> None:
    rows = pa.table(
        {
            "speed": [90.0, 81.0, None, 95.0, 20.0, 88.0],
            "status": ["free", "busy", "free", None, "free", "idle"],
            "battery": [50, 90, 90, 90, 90, 10],
        }
    )
    clause = read_where("speed > 80 AND status IN ('free', 'idle') AND NOT battery < 20")
    assert chosen(clause, rows).to_pylist() == [{"speed": 90.0, "status": "free", "battery": 50}]
    assert chosen_rows(clause, rows) == chosen(clause, rows)
    (batch,) = rows.to_batches()
    assert chosen(read_where("NOT speed > 80"), batch)["speed"].to_pylist() == [20.0]
    assert chosen(read_where("status = 'free' OR speed > 90"), rows)["speed"].to_pylist() == [90.0, None, 95.0, 20.0]


def test_a_window_is_worth_a_row_when_its_value_says_so() -> None:
    values, counts = np.array([101.0, 150.0, np.nan, 100.0]), np.array([5, 50, 50, 50])
    for text in ("value > 100 AND count >= 20", "avg > 100 AND NOT count < 20"):
        assert meets(read_when(text, "avg"), "avg", values, counts).tolist() == [False, True, False, False]
    counted = np.array([2.0, 30.0])
    assert meets(read_when("count > 20", "count"), "count", counted, counted.astype(np.int64)).tolist() == [False, True]
    with pytest.raises(
        InputError, match="at character 1 of the condition: there is no 'sum': there are 'value', 'avg', 'count'"
    ):
        read_when("sum > 100", "avg")
