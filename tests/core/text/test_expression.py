"""Expressions mean what they say, in any form; wrong ones are refused where they go wrong, and huge ones at once."""

import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from geoswarm.core.text.expression import (
    Expression,
    Expressions,
    compile_expressions,
    concatenate_expressions,
    parse,
    satisfied,
)
from geoswarm.core.text.grammar import CONJUNCTIONS_MAX, EXPRESSION_CHARS_MAX, NESTING_MAX, TERMS_MAX
from geoswarm.core.text.tokens import TERM_CHARS_MAX, terms_of
from geoswarm.errors import InputError

UNHURRIED = settings(deadline=None)
LETTERS = "abcdef"


@dataclass(frozen=True)
class Tree:
    """An expression as drawn: a word, or an operator over parts."""

    operator: str
    parts: tuple["Tree | str", ...]

    def holds(self, terms: AbstractSet[str]) -> bool:
        verdicts = [part in terms if isinstance(part, str) else part.holds(terms) for part in self.parts]
        return any(verdicts) if self.operator.strip().upper() == "OR" else all(verdicts)

    def __str__(self) -> str:
        return self.operator.join(part if isinstance(part, str) else f"({part})" for part in self.parts)


def trees(words: st.SearchStrategy[str]) -> st.SearchStrategy[Tree]:
    operators = st.sampled_from([" AND ", " OR ", " and ", "\tOr\n", " ", "  AND "])
    leaf = st.builds(Tree, st.just(" AND "), st.tuples(words))
    return st.recursive(
        leaf,
        lambda inner: st.builds(Tree, operators, st.lists(st.one_of(words, inner), min_size=1, max_size=4).map(tuple)),
        max_leaves=12,
    )


WORDS = st.sampled_from(list(LETTERS))
TERM_SETS = st.sets(WORDS)


def parse_or_reason(text: str) -> Expression | str:
    try:
        return parse(text)
    except InputError as error:
        return str(error)


@UNHURRIED
@given(trees(WORDS), st.lists(TERM_SETS, min_size=1, max_size=20))
def test_an_event_satisfies_an_expression_exactly_when_it_satisfies_it_as_written(
    tree: Tree, events: list[set[str]]
) -> None:
    expression = parse_or_reason(str(tree))
    if isinstance(expression, str):
        assert "limit" in expression
        assume(False)
    for terms in events:
        assert satisfied(expression, terms) == tree.holds(terms)


@UNHURRIED
@given(trees(WORDS), trees(WORDS))
def test_expressions_of_equal_meaning_have_equal_form_and_others_have_not(one: Tree, two: Tree) -> None:
    a, b = parse_or_reason(str(one)), parse_or_reason(str(two))
    assume(isinstance(a, Expression) and isinstance(b, Expression))
    subsets = [{letter for k, letter in enumerate(LETTERS) if bits >> k & 1} for bits in range(1 << len(LETTERS))]
    assert (a == b) == all(one.holds(terms) == two.holds(terms) for terms in subsets)


@pytest.mark.parametrize(
    ("text", "conjunctions"),
    [
        ("flood", (("flood",),)),
        ("flood AND (river OR dam)", (("dam", "flood"), ("flood", "river"))),
        ("flood river", (("flood", "river"),)),
        ("a OR b AND c", (("a",), ("b", "c"))),
        ("a or (a and b) OR b", (("a",), ("b",))),
        ("(flood)(river)", (("flood", "river"),)),
        ('"and" AND "Or"', (("and", "or"),)),
        ('"heavy rain" OR snow', (("heavy", "rain"), ("snow",))),
        ("flood-river", (("flood", "river"),)),
        ("#Überflutung", (("überflutung",),)),
        ("AT&T", (("at", "t"),)),
        ("ORANGE ANDORRA NOTHING", (("andorra", "nothing", "orange"),)),
        ("\tflood\n", (("flood",),)),
    ],
)
def test_an_expression_reads_as_its_conjunctions(text: str, conjunctions: tuple[tuple[str, ...], ...]) -> None:
    assert parse(text).conjunctions == conjunctions
    expressions, bad = compile_expressions(pa.array([text]))
    assert (expressions.expression(0), bad) == (Expression(conjunctions), [])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "empty expression.*leave it null"),
        (" \t", "empty expression"),
        ("(flood", r"at character 1: \( is never closed"),
        ("a (b OR (c d)", r"at character 3: \( is never closed"),
        ("flood)", r"at character 6: \) closes nothing"),
        ("a OR ()", r"at character 6: \(\) has nothing inside"),
        ("AND flood", "at character 1: AND has nothing to its left"),
        ("flood OR", "at character 7: OR has nothing to its right"),
        ("(flood or)", "at character 8: or has nothing to its right"),
        ("flood AND OR dam", "at character 11: OR has nothing to its left"),
        ("a (OR b)", "at character 4: OR has nothing to its left"),
        ("flood & dam", "at character 7: & has no letter or digit.*AND, OR"),
        ('flood ""', 'at character 7: "" has no letter or digit'),
        ('flood "dam', 'at character 7: " is never closed'),
        ("NOT dam", "at character 1: NOT has no word beside it that must be there: write one"),
        ("flood OR NOT dam", "at character 10: NOT has no word beside it"),
        ("flood AND NOT", "at character 11: NOT has nothing to its right"),
        ("flood NOT OR dam", "at character 11: OR has nothing to its left"),
        ("flood AND (NOT)", "at character 12: NOT has nothing to its right"),
        ("flood NOT flood", "at character 7: no text has a word and has it not"),
        ("a NOT (" + " OR ".join(f"b{k} c{k}" for k in range(9)) + ")", "has 512 alternatives"),
        ("a " + "NOT (" + "NOT (" * 70 + "b" + ")" * 71, "parentheses more than"),
        ("flood -dam", "at character 7: -dam reads like NOT"),
        ("flood|dam", r"at character 1: flood\|dam reads like"),
        ("a " + "x" * (TERM_CHARS_MAX + 1), f"at character 3: a word of 65 characters, limit {TERM_CHARS_MAX}"),
        ("(" * 70 + "a" + ")" * 70, f"at character 65: parentheses more than {NESTING_MAX} deep"),
        ("a " * 3000, f"6000 characters, limit {EXPRESSION_CHARS_MAX}"),
        ("a " * 33, f"33 words must occur together.*limit {TERMS_MAX}"),
        ("(a OR b)" * 9, f"has 512 alternatives, limit {CONJUNCTIONS_MAX}"),
        (" OR ".join(f"w{k}" for k in range(257)), "has 257 alternatives"),
    ],
)
def test_a_wrong_expression_is_refused_where_it_goes_wrong(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        parse(text)
    expressions, bad = compile_expressions(pa.array([None, text, "fine"]))
    assert [row for row, _ in bad] == [1]
    assert bad[0][1] == parse_or_reason(text)
    assert [expressions.expression(row) for row in range(3)] == [None, None, parse("fine")]


@pytest.mark.parametrize(
    "bomb",
    [
        "(a OR b)" * 500,
        "(a OR b) AND " * 300 + "c",
        "(" * 100_000 + "a" + ")" * 100_000,
        "(" * 2000,
        "(" * 63 + "(a OR b)" * 8 + ")" * 63,
        "(" * 60 + "(a OR b)" * 8 + " x)" * 60,
        "(" + " OR ".join("abcdefgh"[k % 8] + str(k) for k in range(256)) + ")" + " (z)" * 24,
        "a" * 10_000_000,
        "a OR " * 800 + "a",
    ],
)
def test_a_keyword_bomb_takes_no_time(bomb: str) -> None:
    start_s = time.process_time()
    parse_or_reason(bomb)
    assert time.process_time() - start_s < 1.0


def test_a_bomb_is_refused_with_its_size() -> None:
    with pytest.raises(InputError, match=r"about 10\^150 alternatives"):
        parse("(a OR b)" * 500)


def test_limits_themselves_are_allowed() -> None:
    assert len(parse("(" * NESTING_MAX + "a" + ")" * NESTING_MAX).conjunctions) == 1
    assert len(parse(" ".join(f"w{k}" for k in range(TERMS_MAX))).conjunctions[0]) == TERMS_MAX
    assert len(parse(" OR ".join(f"w{k}" for k in range(CONJUNCTIONS_MAX))).conjunctions) == CONJUNCTIONS_MAX
    assert parse("x" * TERM_CHARS_MAX).conjunctions == (("x" * TERM_CHARS_MAX,),)
    assert parse("flood" + " " * (EXPRESSION_CHARS_MAX - 5)).conjunctions == (("flood",),)


@UNHURRIED
@given(
    st.lists(
        st.one_of(st.none(), st.text(max_size=20), st.text(alphabet='aAbBnNdDoOrRtT ()"é', max_size=14)), max_size=12
    )
)
@example(["a AND b", "a  OR B or a", "or", "a or", "a and b or c", "not a", "aND b", " ", "a" * 65, "b a b", None])
@example(["a " * 8, "a " * 9, "a " * 33, " " * 4096 + "a", "a OR b OR c OR d OR e OR f OR g OR h"])
def test_a_column_of_expressions_compiles_to_what_each_parses_to(texts: list[str | None]) -> None:
    expressions, bad = compile_expressions(pa.array(texts, pa.string()))
    parsed = [None if text is None else parse_or_reason(text) for text in texts]
    assert bad == [(row, reason) for row, reason in enumerate(parsed) if isinstance(reason, str)]
    want = [None if isinstance(expression, str) else expression for expression in parsed]
    assert rows_of(expressions) == want
    words = expressions.vocabulary.to_pylist()
    assert len(set(words)) == len(words)
    assert set(words) == {term for e in want if e for conjunction in e.conjunctions for term in conjunction}


def rows_of(expressions: Expressions) -> list[Expression | None]:
    return [expressions.expression(row) for row in range(len(expressions.conjunctions_offsets) - 1)]


@UNHURRIED
@given(trees(st.sampled_from(["flood", "and", "or", "not", "été", "x1"]).map(lambda word: f'"{word}"')))
def test_an_expression_written_down_reads_as_itself(tree: Tree) -> None:
    expression = parse_or_reason(str(tree))
    assume(isinstance(expression, Expression))
    assert parse(str(expression)) == expression


@UNHURRIED
@given(st.text(max_size=30))
def test_a_quoted_word_asks_for_the_terms_that_the_same_text_gives(text: str) -> None:
    assume('"' not in text and terms_of(text))
    (conjunction,) = parse(f'"{text}"').conjunctions
    assert set(conjunction) == set(terms_of(text))


SOME = ["a AND b", None, "c OR (a AND d)", "b", "(bad", "zeta éa"]


@UNHURRIED
@given(st.lists(st.lists(st.integers(0, len(SOME) - 1), max_size=5), max_size=4))
def test_rows_can_be_taken_and_put_together_again(choices: list[list[int]]) -> None:
    whole, _ = compile_expressions(pa.array(SOME))
    parts = [whole.take(np.array(rows, np.int64)) for rows in choices]
    every = rows_of(whole)
    assert [rows_of(part) for part in parts] == [[every[row] for row in rows] for rows in choices]
    for part in parts:
        assert len(part.vocabulary) == len(np.unique(part.terms))
    joined = concatenate_expressions(parts)
    assert rows_of(joined) == [every[row] for rows in choices for row in rows]
    assert len(set(joined.vocabulary.to_pylist())) == len(joined.vocabulary)


def test_expressions_survive_a_memory_mapped_file(tmp_path: Path) -> None:
    whole, _ = compile_expressions(pa.array(["unused", *SOME]))
    for expressions in (
        whole,
        whole.take(np.array([2, 3])),
        whole.take(np.array([], np.int64)),
        whole.take(np.array([2])),
    ):
        for name, array in expressions.to_arrays().items():
            np.save(tmp_path / f"{name}.npy", array)
        mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in expressions.to_arrays()}
        again = Expressions.from_arrays(mapped)
        again.vocabulary.validate(full=True)
        assert rows_of(again) == rows_of(expressions)
        assert rows_of(concatenate_expressions([again, whole])) == rows_of(expressions) + rows_of(whole)


def test_rows_of_other_types_of_text_compile_too() -> None:
    texts = pa.array(["x", "flood AND dam", None, "y"], pa.large_string()).slice(1, 2)
    expressions, bad = compile_expressions(texts)
    assert (rows_of(expressions), bad) == ([parse("dam flood"), None], [])
