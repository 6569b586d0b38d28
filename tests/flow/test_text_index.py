"""The grid-inverted index finds what the oracle finds: place, words, and each subscription once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoswarm.core.arrays.jit import Bools, Bytes, Floats, Ints
from geoswarm.core.index import words as text
from geoswarm.core.index.cells import build, codes_of, frame_of
from geoswarm.core.index.kernels import Hits, Points, Records, SearchProgress
from geoswarm.core.index.words import CELLS_PER_SUBSCRIPTION_MAX, build_text, conditions_of, wanted_tokens
from geoswarm.core.space.grid import Grid
from geoswarm.core.text.expression import Expressions, compile_expressions, satisfied
from geoswarm.core.text.frequencies import TermCounts
from geoswarm.core.text.kernels import Hashes
from geoswarm.core.text.tokens import Tokens, hash_terms, terms_of, tokenize
from geoswarm.errors import InputError
from geoswarm.flow.match.match import Searchable, match
from geoswarm.flow.match.word_match import PORTION_ENTRIES, match_text
from geoswarm.run.oracle.oracle import brute_force
from worlds import BOUNDS, events, rectangles

GRID = Grid(*BOUNDS, columns=10, rows=10)
WORDS = [
    "a",
    "flood",
    "river",
    "dam",
    "riverside",
    "riversidf",
    "riversides",
    "überschwemmung",
    "überschwemmungen",
    "雨",
]
NONE_DEAD, NO_EXPIRY, ALL = np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.bool_)
Pair = tuple[int, int]


def expression(rng: np.random.Generator, depth: int = 0) -> str:
    if depth == 2 or rng.random() < 0.4:
        return str(rng.choice(WORDS))
    joint = " AND " if rng.random() < 0.5 else " OR "
    return "(" + joint.join(expression(rng, depth + 1) for _ in range(rng.integers(2, 4))) + ")"


def random_expressions(rng: np.random.Generator, n: int) -> Expressions:
    rows = [None if rng.random() < 0.1 else expression(rng) for _ in range(n)]
    compiled, refused = compile_expressions(pa.array(rows, pa.string()))
    assert not refused
    return compiled


def random_texts(rng: np.random.Generator, n: int) -> list[str]:
    return [" ".join(rng.choice([*WORDS, "nobody", "asks"], rng.integers(0, 9))) for _ in range(n)]


class World:
    """Subscriptions and events that often meet; the events in Z-order."""

    def __init__(self, seed: int, subs: int = 60, snap: float | None = None) -> None:
        rng = np.random.default_rng(seed)
        self.rects, self.words = rectangles(rng, subs, snap=snap), random_expressions(rng, subs)
        self.rects[rng.random(subs) < 0.2] = BOUNDS  # asked for anywhere
        batch = events(rng, 80, snap=snap)
        x, y = np.asarray(batch["x"]), np.asarray(batch["y"])
        codes = codes_of(x, y, frame_of(GRID))
        order = np.argsort(codes)
        self.points, self.texts = Points.of(codes[order], x[order], y[order]), random_texts(rng, 80)
        self.tokens = tokenize(pa.array(self.texts))
        self.rng = rng

    def records(self, expires_us: Ints = NO_EXPIRY, dead: Bytes = NONE_DEAD) -> Records:
        return Records.of(self.rects, np.arange(len(self.rects)) * 10, expires_us, dead)

    def searchable(self, frequencies: Floats | None = None, records: Records | None = None) -> Searchable:
        index = build_text(GRID, self.rects, self.records().ids, self.words, frequencies)
        return Searchable(records or self.records(), None, index, conditions_of(self.words))

    def oracle(self) -> set[Pair]:
        inside = brute_force(self.points.x, self.points.y, self.rects, np.arange(len(self.rects)))
        spoken = [set(terms_of(one)) for one in self.texts]
        asks = [self.words.expression(row) for row in range(len(self.rects))]
        return {(i, s * 10) for i, s in inside if (ask := asks[s]) is not None and satisfied(ask, spoken[i])}


def find_pairs(
    points: Points, tokens: Tokens, segment: Searchable, *, now_us: int = 0, probe: Bools = ALL, room: int = 1
) -> list[Pair]:
    """As `match.py` searches: room for what comes next, again and again."""
    assert segment.text is not None
    assert segment.conditions is not None
    hits, done = Hits(np.empty(len(points.codes), np.int64), np.empty(room, np.int64)), SearchProgress(0, 0, 0)
    while done.points < len(points.codes):
        done = match_text(points, tokens, segment.text, segment.conditions, segment.records, now_us, probe, hits, done)
        if done.wanted > len(hits.subs):
            hits = hits.longer(done.wanted)
    starts = [0, *hits.ends[:-1].tolist()]
    return [(i, int(s)) for i, start in enumerate(starts) for s in hits.subs[start : hits.ends[i]]]


@settings(deadline=None, max_examples=100)
@given(seed=st.integers(0, 2**32 - 1), snap=st.sampled_from([None, 1.0, 0.36, 4.5]), room=st.integers(0, 200))
def test_the_text_index_finds_what_the_oracle_finds_once(seed: int, snap: float | None, room: int) -> None:
    world = World(seed, snap=snap)
    assert sorted(find_pairs(world.points, world.tokens, world.searchable(), room=room)) == sorted(world.oracle())


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_frequencies_that_are_wrong_change_nothing_that_is_found(seed: int) -> None:
    world = World(seed)
    frequencies = world.rng.random(len(world.words.vocabulary))
    assert sorted(find_pairs(world.points, world.tokens, world.searchable(frequencies))) == sorted(world.oracle())


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), executors=st.integers(1, 4))
def test_executors_that_share_out_the_terms_find_each_match_once_between_them(seed: int, executors: int) -> None:
    world = World(seed)
    segment, share = world.searchable(), world.tokens.hashes % np.uint64(executors)
    parts = [find_pairs(world.points, world.tokens, segment, probe=share == e) for e in range(executors)]
    assert sorted(pair for part in parts for pair in part) == sorted(world.oracle())


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_cancelled_and_expired_askers_are_not_found(seed: int) -> None:
    world = World(seed)
    cancelled, expires_us = world.rng.random(60) < 0.3, world.rng.integers(90, 110, 60)
    records = world.records(expires_us, np.packbits(cancelled, bitorder="little"))
    want = {(i, s) for i, s in world.oracle() if not cancelled[s // 10] and expires_us[s // 10] > 100}
    got = find_pairs(world.points, world.tokens, world.searchable(records=records), now_us=100)
    assert sorted(got) == sorted(want)


@pytest.mark.parametrize(
    "weak",
    [lambda h: h * np.uint64(0), lambda h: h % np.uint64(3), lambda h: h << np.uint64(62), lambda h: h | ~np.uint64(7)],
    ids=["all the same", "three, low", "four, high", "eight, at the very end"],
)
def test_terms_whose_hashes_collide_are_kept_apart_by_their_bytes(
    weak: Callable[[Hashes], Hashes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "hash_terms", lambda words: weak(hash_terms(words)))
    for seed in range(20):
        world = World(seed)
        tokens = world.tokens._replace(hashes=weak(world.tokens.hashes))
        want = world.oracle()
        assert len(want) > 20
        assert sorted(find_pairs(world.points, tokens, world.searchable())) == sorted(want)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_match_is_under_a_token_that_a_router_sends(seed: int) -> None:
    world = World(seed, subs=15)
    segment = world.searchable()
    asked = wanted_tokens(world.points, world.tokens, [segment, Searchable(world.records(), None)])
    assert sorted(find_pairs(world.points, world.tokens, segment, probe=asked)) == sorted(world.oracle())


def test_a_router_sends_only_terms_that_a_subscription_nearby_asks_for() -> None:
    rects = np.array([[10.0, 10.0, 11.0, 11.0], [-100.0, 40.0, -99.0, 41.0]])
    words, _ = compile_expressions(pa.array(["flood AND river", "dam"]))
    x, y = np.array([10.5, 10.5, 10.5, -99.5]), np.array([10.5, 10.5, 10.5, 40.5])
    codes = codes_of(x, y, frame_of(GRID))
    order = np.argsort(codes, kind="stable")
    texts = ["flood on the river", "river, dam", "", "the dam on the river"]
    tokens = tokenize(pa.array([texts[i] for i in order]))
    index = build_text(
        GRID,
        rects,
        np.arange(2),
        words,
        np.array([{"flood": 1, "river": 9, "dam": 2}[w] for w in words.vocabulary.to_pylist()]),
    )
    segment = Searchable(Records.of(rects, np.arange(2), NO_EXPIRY, NONE_DEAD), None, index, conditions_of(words))
    asked = wanted_tokens(Points.of(codes[order], x[order], y[order]), tokens, [segment])
    told = {
        (i, term)
        for i, row in enumerate(order)
        for term, on in zip(tokens.terms(i), asked[tokens.offsets[i] : tokens.offsets[i + 1]], strict=True)
        if on and row >= 0
    }
    assert {(int(order[i]), term) for i, term in told} == {(0, "flood"), (3, "dam")}


def test_a_segment_without_subscriptions_for_words_has_an_empty_index() -> None:
    world = World(1)
    words, _ = compile_expressions(pa.array([None] * 60, pa.string()))
    index = build_text(GRID, world.rects, world.records().ids, words)
    segment = Searchable(world.records(), None, index, conditions_of(words))
    assert len(index.packed) == 0
    assert find_pairs(world.points, world.tokens, segment) == []
    assert not wanted_tokens(world.points, world.tokens, [segment]).any()


def test_a_subscription_costs_at_most_four_entries_per_conjunction_whatever_its_size() -> None:
    rng = np.random.default_rng(3)
    low = rng.uniform([-180, -90], [180, 90], (200, 2))
    rects = np.concatenate([low, np.minimum(low + 10.0 ** rng.uniform(-6, 2.5, (200, 2)), (180, 90))], axis=1)
    words = random_expressions(rng, 200)
    index = build_text(GRID, rects, np.arange(200), words)
    asking = index.alternatives[index.packed >> np.uint64(32), 1] >> np.uint64(32)
    per_subscription = np.bincount(asking.astype(np.int64), minlength=200)
    conjunctions = np.diff(words.conjunctions_offsets)
    assert (per_subscription >= conjunctions).all()
    assert (per_subscription <= CELLS_PER_SUBSCRIPTION_MAX * conjunctions).all()


def test_a_subscription_is_listed_under_its_rarest_term() -> None:
    words, _ = compile_expressions(pa.array(["flood AND river AND dam", "river OR dam"]))
    counts = TermCounts.empty()
    counts.add(tokenize(pa.array(["river", "river dam", "river flood", "dam"])))
    index = build_text(
        GRID, np.tile(np.array(BOUNDS), (2, 1)), np.arange(2), words, counts.read(hash_terms(words.vocabulary))
    )
    listed = {words.vocabulary[int(row)].as_py() for row, height in _terms_with_lists(index) if height}
    assert listed == {"flood", "river", "dam"}
    only, _ = compile_expressions(pa.array(["flood AND river AND dam"]))
    index = build_text(GRID, np.array([BOUNDS]), np.arange(1), only, counts.read(hash_terms(only.vocabulary)))
    assert {only.vocabulary[int(row)].as_py() for row, height in _terms_with_lists(index) if height} == {"flood"}


def _terms_with_lists(index: Any) -> list[tuple[int, int]]:
    return [(int(word) & 0xFFFFFFFF, int(word) >> 32) for word in index.terms[:, 1]]


def test_an_index_cannot_be_written_to_whether_it_is_mapped_or_made() -> None:
    world = World(5)
    segment = world.searchable()
    assert segment.text is not None
    assert not any(array.flags.writeable for array in segment.text)
    assert sorted(find_pairs(world.points, world.tokens, segment)) == sorted(world.oracle())


def test_an_index_is_good_for_the_same_words_wherever_they_lie() -> None:
    world = World(6)
    shifted = pa.concat_arrays([pa.array(["before"]), world.words.vocabulary]).slice(1)
    stored = Expressions.from_arrays(world.words.to_arrays())
    index = build_text(GRID, world.rects, world.records().ids, world.words._replace(vocabulary=shifted))
    segment = Searchable(world.records(), None, index, conditions_of(stored))
    assert sorted(find_pairs(world.points, world.tokens, segment)) == sorted(world.oracle())


def test_a_text_of_thousands_of_words_finds_what_it_says() -> None:
    words, _ = compile_expressions(pa.array(["w7 AND w4999", "w7 AND w5000", "w1 OR w2"]))
    rects = np.tile(np.array(BOUNDS), (3, 1))
    segment = Searchable(
        Records.of(rects, np.arange(3), NO_EXPIRY, NONE_DEAD),
        None,
        build_text(GRID, rects, np.arange(3), words),
        conditions_of(words),
    )
    codes = codes_of(np.zeros(2), np.zeros(2), frame_of(GRID))
    tokens = tokenize(pa.array([" ".join(f"w{i}" for i in range(5000)), "w5000 w7"]))
    assert sorted(find_pairs(Points.of(codes, np.zeros(2), np.zeros(2)), tokens, segment)) == [(0, 0), (0, 2), (1, 1)]


def test_a_text_that_fills_every_signature_still_finds_only_what_it_says() -> None:
    asks = ["no1 OR w2", "no1 OR no2 OR w3", "no1 AND no2 OR w4", "no1 AND w5", "w6 OR w7 OR w8", "no1 OR no2"]
    crowd = [f"w{i}" for i in range(16_000)]  # terms of the segment, so that each of them has its slot
    words, _ = compile_expressions(pa.array([*asks, *crowd]))
    rects = np.tile(np.array(BOUNDS), (len(asks) + len(crowd), 1))
    ids = np.arange(len(rects))
    index = build_text(GRID, rects, ids, words)
    segment = Searchable(Records.of(rects, ids, NO_EXPIRY, NONE_DEAD), None, index, conditions_of(words))
    here = np.zeros(1)
    points = Points.of(codes_of(here, here, frame_of(GRID)), here, here)
    want = [0, 1, 2, 4, *range(len(asks), len(rects))]
    texts = [" ".join(crowd[:8000]), " ".join(crowd[8000:])]
    tokens = [tokenize(pa.array([text])) for text in texts]
    assert sorted(s for _, s in find_pairs(points, tokens[0], segment)) == [s for s in want if s < len(asks) + 8000]
    assert sorted(s for _, s in find_pairs(points, tokens[1], segment)) == [s for s in want if s >= len(asks) + 8000]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), room=st.sampled_from([0, 500, 3000, 40_000]))
def test_events_that_share_a_block_and_have_thousands_of_entries_find_what_the_oracle_finds(
    seed: int, room: int
) -> None:
    world = World(seed, subs=500, snap=4.5)
    entries = len(world.searchable().text.packed)  # type: ignore[union-attr]
    assert entries * len(world.texts) > 10 * PORTION_ENTRIES
    assert sorted(find_pairs(world.points, world.tokens, world.searchable(), room=room)) == sorted(world.oracle())


def test_ids_of_64_bits_are_found_as_they_are() -> None:
    ids = np.array([-(2**63), -1, 2**63 - 1])
    words, _ = compile_expressions(pa.array(["flood", "flood AND dam", "river OR flood"]))
    rects, here = np.tile(np.array(BOUNDS), (3, 1)), np.zeros(1)
    index = build_text(GRID, rects, ids, words)
    segment = Searchable(Records.of(rects, ids), None, index, conditions_of(words))
    tokens = tokenize(pa.array(["flood at the dam"]))
    found = find_pairs(Points.of(codes_of(here, here, frame_of(GRID)), here, here), tokens, segment)
    assert sorted(s for _, s in found) == ids.tolist()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), pairs_max=st.integers(1, 60), rows_max=st.integers(1, 100))
def test_limits_on_memory_change_how_matches_in_several_segments_are_cut_but_not_which(
    seed: int, pairs_max: int, rows_max: int
) -> None:
    worlds = [World(seed), World(seed, snap=0.36)]
    first = worlds[0]
    columns = {"event_id": np.arange(80), "x": first.points.x, "y": first.points.y, "text": pa.array(first.texts)}
    batch = pa.RecordBatch.from_pydict(columns)
    rest = Searchable(
        Records.of(worlds[1].rects, np.arange(60) * 10 + 1, NO_EXPIRY, NONE_DEAD), build(GRID, worlds[1].rects)
    )
    mets = list(match(batch, [first.searchable(), rest], GRID, 0, rows_max=rows_max, pairs_max=pairs_max))
    assert all(len(met.subs) <= pairs_max for met in mets if len(met.events) > 1)
    got = [
        (int(met.events["event_id"][i].as_py()), int(s))
        for met in mets
        for i in range(len(met.events))
        for s in met.subs[met.offsets[i] : met.offsets[i + 1]]
    ]
    places = {(i, s * 10 + 1) for i, s in brute_force(first.points.x, first.points.y, worlds[1].rects, np.arange(60))}
    assert sorted(got) == sorted(first.oracle() | places)


def test_counts_of_terms_add_up_fade_and_never_read_too_little() -> None:
    rng = np.random.default_rng(0)
    texts = [random_texts(rng, 300), random_texts(rng, 200)]
    parts = [TermCounts.empty(64), TermCounts.empty(64)]
    for part, lines in zip(parts, texts, strict=True):
        part.add(tokenize(pa.array(lines)))
    hashes = hash_terms(pa.array(WORDS))
    both, exact = parts[0] + parts[1], [sum(word in terms_of(one) for one in texts[0] + texts[1]) for word in WORDS]
    assert (both.read(hashes) >= exact).all()
    wide = TermCounts.empty()
    wide.add(tokenize(pa.array(texts[0] + texts[1])))
    assert wide.read(hashes).tolist() == exact
    assert wide.fade(0.5).read(hashes).tolist() == [count / 2 for count in exact]
    with pytest.raises(InputError, match="64 and 65536"):
        parts[0] + wide
    with pytest.raises(InputError, match="power of two"):
        TermCounts.empty(1000)


def test_a_sample_of_texts_counts_for_all_of_them() -> None:
    counts = TermCounts.empty()
    counts.add(tokenize(pa.array(["flood", "river"] * 500)), every=10, first=3)
    assert counts.read(hash_terms(pa.array(["flood", "river"]))).tolist() == [0, 1000]
