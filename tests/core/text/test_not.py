"""NOT in keywords: what is written out means what the expression says, word by word."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from geoswarm.core.text.expression import Expression, compile_expressions, parse, satisfied
from geoswarm.errors import InputError

WORDS = ("flood", "dam", "drill", "not", "storm")
Meaning = Callable[[set[str]], bool]


def drawn(rng: np.random.Generator, depth: int = 0) -> tuple[str, Meaning]:
    """An expression, and what it says."""
    kind = rng.integers(4) if depth < 4 else 0
    if kind == 0:
        word = str(rng.choice(WORDS))
        return f'"{word}"' if word == "not" else word, lambda said: word in said
    if kind == 1:
        text, inner = drawn(rng, depth + 1)
        return f"NOT {text}", lambda said: not inner(said)
    (one, first), (two, second) = drawn(rng, depth + 1), drawn(rng, depth + 1)
    if kind == 2:
        return f"({one} AND {two})", lambda said: first(said) and second(said)
    return f"({one} or {two})", lambda said: first(said) or second(said)


def parse_or_reason(text: str) -> tuple[Expression | None, str]:
    try:
        return parse(text), ""
    except InputError as why:
        return None, str(why)


@pytest.mark.parametrize("seed", range(5))
def test_an_expression_with_not_means_what_it_says(seed: int) -> None:
    rng, read = np.random.default_rng(seed), 0
    texts = [set(rng.choice(WORDS, int(rng.integers(0, 5))).tolist()) for _ in range(20)]
    for _ in range(300):
        text, meaning = drawn(rng)
        expression, why = parse_or_reason(text)
        if expression is None:
            assert ("no word beside it" in why and meaning(set())) or "has it not" in why or "limit" in why, text
            continue
        assert [satisfied(expression, said) for said in texts] == [meaning(said) for said in texts], text
        assert parse(str(expression)) == expression
        expressions, _ = compile_expressions(pa.array(["dam river", text]))
        assert expressions.take(np.array([1])).expression(0) == expression
        read += 1
    assert read > 100


def test_banned_words_come_last_and_are_shown_with_not() -> None:
    assert str(parse('flood AND NOT ("not" OR a)')) == 'flood AND NOT a AND NOT "not"'
    assert str(parse("NOT (NOT flood OR dam)")) == "flood AND NOT dam"
    assert parse("a (b OR NOT c)").conjunctions == (("a", "-c"), ("a", "b"))


def test_two_hundred_and_fifty_six_words_may_be_banned() -> None:
    words = " OR ".join(f"w{k}" for k in range(256))
    assert len(parse(f"flood NOT ({words})").conjunctions[0]) == 257
    with pytest.raises(InputError, match=r"257 words under NOT, limit 256|alternatives"):
        parse(f"flood NOT ({words}) NOT more")
