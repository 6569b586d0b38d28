"""Partial aggregates: however events are shared among tasks and merged, the answers are those of all values at once."""

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geoswarm.core.aggregates.columns import GROUP_CHARS_MAX, groups_of, misfit, values_of
from geoswarm.core.aggregates.partials import TOP, Answers, make_partials, merge_partials, partial_fields, read_answers
from geoswarm.core.aggregates.spec import FUNCTIONS, read_spec
from geoswarm.core.arrays.jit import Ints

ARGUMENTS = {"quantile": 0.5, "top": 3.0}
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats()
KINDS = {pa.int64(): INTEGERS, pa.float64(): FLOATS, pa.int8(): st.integers(-128, 127), pa.uint64(): st.just(2**64 - 1)}


def obvious(function: str, values: list[Any], kind: pa.DataType) -> tuple[float | None, list[tuple[str, int]] | None]:
    given = [value for value in values if value is not None]
    numbers = [value for value in given if not (isinstance(value, float) and math.isnan(value))]
    if function == "count":
        return float(len(values)), None
    if function == "distinct":
        return float(len({"nan" if value != value else value for value in given})), None
    if function == "top":
        written = Counter(pa.array(given, kind).cast(pa.string()).to_pylist())
        return None, sorted(written.items(), key=lambda one: (-one[1], one[0]))[:3]
    if not numbers:
        return None, None
    if function in ("min", "max"):
        return float(min(numbers) if function == "min" else max(numbers)), None
    if function == "quantile":
        return float(sorted(map(float, numbers))[math.ceil(len(numbers) / 2) - 1]), None
    infinities = [value for value in numbers if math.isinf(value)]
    if infinities:
        return (None if len(set(infinities)) == 2 else infinities[0]), None
    total = sum(map(Fraction, numbers), Fraction(0))
    try:
        exact = float(total)
    except OverflowError:
        exact = math.inf if total > 0 else -math.inf
    if function == "sum":
        return exact, None
    return (exact / len(numbers) if math.isfinite(exact) else float(total / len(numbers))), None


def shown(answers: Answers) -> list[tuple[float | None, list[tuple[str, int]] | None]]:
    tops = [None if top is None else [(one["value"], one["times"]) for one in top] for top in answers.top.to_pylist()]
    return list(zip(answers.value.to_pylist(), tops, strict=True))


@pytest.mark.parametrize("function", FUNCTIONS)
@given(data=st.data())
def test_shares_and_merges_change_no_answer(function: str, data: st.DataObject) -> None:
    kind, drawn = data.draw(st.sampled_from(list(KINDS.items())))
    values = data.draw(st.lists(st.none() | drawn, max_size=30))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=6)))
    column: pa.Array = pa.array(values, kind)
    given = column if function != "top" else column.cast(pa.string())
    starts = np.array([0, *cuts, len(values)])
    partials = make_partials(function, given, starts)
    assert [partial.type for partial in partials] == [field.type for field in partial_fields(function)]
    order = np.array(data.draw(st.permutations(range(len(starts) - 1))))
    middle = data.draw(st.integers(0, len(order)))
    once = merge_partials(
        function, [part.take(pa.array(order)) for part in partials], np.array([0, middle, len(order)])
    )
    whole = merge_partials(function, once, np.array([0, 2]))
    answers = read_answers(function, whole, ARGUMENTS.get(function))
    assert shown(answers) == [obvious(function, values, kind)]
    assert whole[0].to_pylist() == [len(values)]
    assert answers.error.to_pylist() == [0.0]
    if function not in ("quantile", "top"):
        direct = make_partials(function, given, np.array([0, len(values)]))
        assert [part.to_pylist() for part in whole] == [part.to_pylist() for part in direct]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_groups_do_not_mix(function: str) -> None:
    rng = np.random.default_rng(3)
    column = pa.array(rng.integers(0, 9, 400), mask=rng.random(400) < 0.3)
    starts = np.sort(np.append(rng.integers(0, 401, 90), [0, 400]))
    given = column if function != "top" else column.cast(pa.string())
    answers = read_answers(function, make_partials(function, given, starts), ARGUMENTS.get(function))
    want = [obvious(function, column[a:b].to_pylist(), column.type) for a, b in itertools.pairwise(starts)]
    assert shown(answers) == want


@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_groups_give_no_answers(function: str) -> None:
    nothing = np.zeros(1, np.int64)
    partials = (
        merge_partials(function, make_partials(function, pa.array([], pa.string()), nothing), nothing)
        if function in ("top", "count")
        else merge_partials(function, make_partials(function, pa.array([], pa.float64()), nothing), nothing)
    )
    answers = read_answers(function, partials, ARGUMENTS.get(function))
    assert [len(part) for part in answers] == [0, 0, 0]
    assert (answers.value.type, answers.top.type, answers.error.type) == (pa.float64(), TOP, pa.float64())


def test_many_values_are_within_the_error_that_is_stated() -> None:
    rng = np.random.default_rng(7)
    numbers = rng.integers(0, 60_000, 120_000)
    starts: Ints = np.arange(0, 120_001, 10_000)
    column = pa.array(numbers)

    def answer(function: str, given: pa.Array, argument: float | None) -> Answers:
        partials = make_partials(function, given, starts)
        return read_answers(function, merge_partials(function, partials, np.array([0, 12])), argument)

    distinct = answer("distinct", column, None)
    (error,) = distinct.error.to_pylist()
    truth = len(np.unique(numbers))
    assert 0 < error <= 0.05
    assert abs(distinct.value[0].as_py() - truth) <= error * truth
    quantile = answer("quantile", column, 0.9)
    (error,) = quantile.error.to_pylist()
    assert 0 < error < 0.01
    assert abs(np.mean(numbers <= quantile.value[0].as_py()) - 0.9) <= error
    skewed = np.where(rng.random(120_000) < 0.2, 7, numbers)
    top = answer("top", pa.array(skewed).cast(pa.string()), 1.0)
    (error,) = top.error.to_pylist()
    assert 0 < error < 0.01
    (first,) = top.top[0].as_py()
    assert first["value"] == "7"
    assert 0 <= first["times"] - np.count_nonzero(skewed == 7) <= error * 120_000


EVENTS = pa.record_batch(
    {
        "v": pa.array([1.5, None]),
        "n": pa.array([1, 2]),
        "kind": pa.array(["a" * 200, None]),
        "coded": pa.array(["x", "y"]).dictionary_encode(),
        "is_free": pa.array([True, False]),
        "tags": pa.array([["a"], ["b"]]),
        "when": pa.array([0, 1], pa.timestamp("us", tz="UTC")),
        "broken": pa.array([b"\xff\xfe", b"fine"]).view(pa.string()),
    }
)


@pytest.mark.parametrize(
    ("aggregate", "group_by", "why"),
    [
        ("count", None, None),
        ("sum(v)", "kind", None),
        ("quantile(n, 0.5)", "is_free", None),
        ("distinct(coded)", "when", None),
        ("top(coded, 3)", "n", None),
        ("sum(xyz)", None, "events have no column 'xyz': there are 'v', 'n', 'kind'"),
        ("sum(kinds)", None, "events have no column 'kinds': did you mean 'kind'?"),
        ("avg(kind)", None, "avg takes numbers, and kind is string: name another column"),
        ("max(is_free)", None, "max takes numbers, and is_free is bool"),
        ("distinct(tags)", None, "distinct takes texts, numbers, booleans, times or bytes, and tags is list"),
        ("count", "tags", "group_by takes texts, numbers, booleans or times, and tags is list"),
        ("count", "nothing", "events have no column 'nothing'"),
    ],
)
def test_a_column_that_does_not_fit_is_named(aggregate: str, group_by: str | None, why: str | None) -> None:
    found = misfit(read_spec(aggregate, "count(5)", group_by), EVENTS.schema)
    assert found is None if why is None else found is not None and found.startswith(why)


def test_a_column_that_does_not_fit_is_null_in_all_events() -> None:
    for asked in ("sum(kind)", "avg(missing)", "distinct(tags)"):
        assert values_of(read_spec(asked, "count(5)"), EVENTS).to_pylist() == [None, None]  # type: ignore[union-attr]
    assert values_of(read_spec("count", "count(5)"), EVENTS) is None
    assert groups_of(read_spec("count", "count(5)", "tags"), EVENTS).to_pylist() == [None, None]
    assert groups_of(read_spec("count", "count(5)"), EVENTS).to_pylist() == [None, None]


def test_groups_have_names_of_text() -> None:
    def names(column: str) -> list[str | None]:
        found: list[str | None] = groups_of(read_spec("count", "count(5)", column), EVENTS).to_pylist()
        return found

    assert names("n") == ["1", "2"]
    assert names("is_free") == ["true", "false"]
    assert names("coded") == ["x", "y"]
    assert names("kind") == ["a" * GROUP_CHARS_MAX, None]
    assert names("when") == ["1970-01-01 00:00:00.000000Z", "1970-01-01 00:00:00.000001Z"]
    assert names("broken") == ["\ufffd\ufffd", "fine"]
