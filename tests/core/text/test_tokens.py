"""The kernel gives the terms that the definition gives, for any Unicode; the definition gives what users expect."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geoswarm.core.text.tokens import TERM_CHARS_MAX, TEXT_BYTES_MAX, Tokens, hash_terms, terms_of, tokenize
from geoswarm.errors import SchemaError

UNHURRIED = settings(deadline=None, max_examples=300)

# What is rare in Unicode at large and hard for a tokenizer: marks of many classes, letters that fold to several,
# composites, Hangul parts, Greek with iota subscript, emoji with selectors and joiners.
HARD = "aAeiIsKz09 #-'ßẞİıŉǰΐᾳᾼΣσςŃÅÅΩéÉ़ְִ́̀̈͂̓̓̕ͅािक्क़ำุ้กด각ᄀ㄁ᅡᆨﬁﬃﷺ❤️👩‍👩‍👧🏽1️⃣²½Ⅷⅷ中文葛󠄀ـُّ𝔸𞤀Ⱥ≠≮Ⓐ­\u200d\u200c\u0000\uffff\U0010ffff"
TEXTS = st.one_of(
    st.text(max_size=60),
    st.text(alphabet=st.sampled_from(HARD), max_size=30),
    st.text(alphabet="ab cA", max_size=300),
)


def assert_as_defined(texts: list[str | None], tokens: Tokens) -> None:
    assert len(tokens.offsets) == len(texts) + 1
    for row, text in enumerate(texts):
        assert sorted(tokens.terms(row)) == sorted(terms_of(text or "")), ascii(text)
        hashes = tokens.hashes[tokens.offsets[row] : tokens.offsets[row + 1]]
        assert (hashes[1:] >= hashes[:-1]).all()


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("#Flood in the RIVER, flood!", ["flood", "in", "the", "river"]),
        ("don't", ["don", "t"]),
        ("Straße STRASSE", ["strasse"]),
        ("caf\u00e9 cafe\u0301 CAFÉ cafe", ["caf\u00e9", "cafe"]),
        ("❤\ufe0fflood ⚠\ufe0f", ["flood"]),  # a selector behind a sign begins no word
        ("route66 3.5", ["route66", "3", "5"]),
        ("снег СНЕГ", ["снег"]),
        ("हिन्दी ภาษาไทย", ["हिन्दी", "ภาษาไทย"]),
        ("ᾼ ᾳ ΑΙ", ["αι"]),
        ("", []),
        ("… -- !?", []),
    ],
)
def test_words_are_what_a_reader_would_call_words(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms
    assert sorted(tokenize(pa.array([text])).terms(0)) == sorted(terms)


@UNHURRIED
@given(st.lists(st.one_of(st.none(), TEXTS), max_size=6))
@example(["α\u0345\u0323 ᾳ\u0323"])
@example([None, "a" * TERM_CHARS_MAX, "a" * (TERM_CHARS_MAX + 1), "é" * TERM_CHARS_MAX, "ß" * 33])
def test_any_text_gives_the_terms_of_the_definition(texts: list[str | None]) -> None:
    assert_as_defined(texts, tokenize(pa.array(texts, pa.string())))


@UNHURRIED
@given(TEXTS)
def test_texts_that_are_canonically_equal_or_differ_in_case_have_equal_terms(text: str) -> None:
    want = terms_of(text)
    composed, decomposed = unicodedata.normalize("NFC", text), unicodedata.normalize("NFD", text)
    for same in (composed, decomposed, decomposed.casefold()):
        assert terms_of(same) == want
    for term in want:
        assert terms_of(term) == [term]


@pytest.mark.slow
def test_every_code_point_is_read_as_defined_alone_and_among_letters_and_marks() -> None:
    codes = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x32000), *range(0xE0000, 0xE0200))]
    for shape in ("{}", "x{}\u05b0y", "क\u094d{}z"):  # with marks that need no composing, so that the kernel folds
        texts = [shape.format(code) for code in codes]
        tokens = tokenize(pa.array(texts))
        got = [tokens.folded[s:e].tobytes() for s, e in zip(tokens.starts, tokens.ends, strict=True)]
        want = [{term.encode() for term in terms_of(text)} for text in texts]
        assert np.diff(tokens.offsets).tolist() == [len(terms) for terms in want]
        for row, terms in enumerate(want):
            assert {*got[tokens.offsets[row] : tokens.offsets[row + 1]]} == terms, ascii(texts[row])


def test_every_byte_of_ascii_is_read_as_defined_wherever_it_stands_among_eight() -> None:
    texts = [f"{'aZ9' * 6}"[:before] + chr(code) + "bY0 c" for code in range(128) for before in range(0, 18)]
    texts += ["x" * length + end for length in range(TERM_CHARS_MAX + 2) for end in ("", " ", "é", " é")]
    tokens = tokenize(pa.array(texts))  # the last text ends with the data, the others before more of it
    for row, text in enumerate(texts):
        assert set(tokens.terms(row)) == set(terms_of(text)), text
    assert (tokens.hashes == hash_terms(pa.array([t for row in range(len(texts)) for t in tokens.terms(row)]))).all()


def test_a_slice_with_nulls_reads_its_own_rows_only() -> None:
    texts = ["before", "Ärger", None, "two words", "after"]
    for kind in (pa.string(), pa.large_string()):
        tokens = tokenize(pa.array(texts, kind).slice(1, 3))
        assert [sorted(tokens.terms(row)) for row in range(3)] == [["ärger"], [], ["two", "words"]]


def test_bytes_under_a_null_are_not_read() -> None:
    words = pa.array(["hidden", "seen"])
    masked = pa.StringArray.from_buffers(2, words.buffers()[1], words.buffers()[2], pa.py_buffer(b"\x02"))
    tokens = tokenize(masked)
    assert (tokens.terms(0), tokens.terms(1)) == ([], ["seen"])


@UNHURRIED
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=5))
@example([b"ok \xc3", b"\xed\xa0\x80x", b"\xf4\x90\x80\x80y", b"\xc0\xafz", b"a\xe2\x82"])
def test_bytes_that_are_no_utf8_separate_words(rows: list[bytes]) -> None:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    broken = pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(b"".join(rows)))
    assert_as_defined([row.decode("utf-8", "replace") for row in rows], tokenize(broken))


def test_a_text_is_read_to_its_limit_without_the_word_that_is_cut() -> None:
    for letter in ("a", "é", "e\u0301"):
        word = letter * 7 + " "
        text = "first " + word * (TEXT_BYTES_MAX // len(word.encode()) - 2) + "last" + "st" * 40 + " beyond"
        assert_as_defined([text, "x"], tokenize(pa.array([text, "x"])))
        assert "beyond" not in terms_of(text)
        assert "first" in terms_of(text)
    exact = "b" * 9 + " " + "c " * ((TEXT_BYTES_MAX - 10) // 2)
    assert terms_of(exact) == ["b" * 9, "c"]
    cut = "x" * (TEXT_BYTES_MAX - 3) + " flood"
    assert terms_of(cut) == []


def test_many_distinct_words_and_many_repeats_are_each_kept_once() -> None:
    rng = np.random.default_rng(7)
    texts: list[str | None] = [
        " ".join(f"w{k}" for k in rng.integers(0, 400, size)) for size in (0, 1, 47, 48, 49, 2000)
    ]
    texts += ["a " * 5000, "a b c d e f " * 900]  # a term per two bytes: more room than usual
    texts.append(" ".join(f"w{k} the of" for k in range(400)))  # two buckets of many, among buckets of one
    assert_as_defined(texts, tokenize(pa.array(texts)))


def test_a_hash_is_the_same_on_every_machine() -> None:
    terms = ["flood", "a", "", "été", "abcdefgh", "abcdefghi"]
    assert hash_terms(pa.array(terms)).tolist() == [
        6321972535342033410,
        17300432930640213622,
        16852473371444490038,
        14816515066590774854,
        7903070285641070962,
        12435505264271889875,
    ]


def test_tokens_carry_the_hash_of_their_term() -> None:
    tokens = tokenize(pa.array(["Überschwemmungsgebiet Flood ΑΣΦΑΛΕΣΤΑΤΟΣ e\u0301te\u0301"]))
    assert tokens.hashes.tolist() == hash_terms(pa.array(tokens.terms(0))).tolist()


def test_terms_that_share_a_hash_stay_apart() -> None:
    first, second = "3dgig25ubdlpwrjf", "dw0xnlsjul6qjq0a"  # made by inverting the hash's mixing
    assert len(set(hash_terms(pa.array([first, second])).tolist())) == 1
    filler = " ".join(f"w{k}" for k in range(60))
    texts: list[str | None] = [f"{first} {second} {first}", f"{second} {first}", f"{first} {filler} {second} {first}"]
    assert_as_defined(texts, tokenize(pa.array(texts)))


def test_a_column_that_is_no_text_is_refused() -> None:
    with pytest.raises(SchemaError, match="int64"):
        tokenize(pa.array([1, 2]))
