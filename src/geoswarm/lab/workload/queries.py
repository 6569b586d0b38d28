"""Squares of some kilometres and a few keywords: what the queries Q1, Q2 and Q3 of PS2Stream ask for.

Pure functions from ids and places; `posts.py` knows the places and the language, and makes rows of it.

    Q1  sides 1 to 50 km     keywords as the place speaks
    Q2  sides 1 to 100 km    the same, the first of them outside the top 1 %
    Q3  10 × 10 regions      each Q1 or Q2; a tenth of them switches with each interval of ids

PS2Stream §VI-A, §VI-C, §VI-D. Three things the paper leaves open: the keywords of a query are joined by one operator,
AND or OR with equal chance; the top 1 % are those of the whole map; and the regions switch in turns, each of them
once in ten intervals.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Floats, Ints, kernel
from geoswarm.lab.workload.cities import Bounds
from geoswarm.lab.workload.draw import Key, bits, key_of, uniform
from geoswarm.lab.workload.words import Lexicon, region_of, word_of

SIDE_MIN_KM, SIDE_MAX_Q1_KM, SIDE_MAX_Q2_KM = 1.0, 50.0, 100.0
KEYWORDS_MAX = 3
SWITCH_SIDE, SWITCH_TURNS = 10, 10
KM_PER_DEGREE = 111.195
"""Kilometres per degree of latitude, on a sphere of the Earth's mean radius."""
COS_MIN = 0.01
"""A square at a pole has no width in degrees."""
TRIES = 16
"""Draws for the keywords of one query; a rare word and two others are nearly always among them."""

Words = npt.NDArray[np.int32]


def is_q2(ids: Ints, x: Floats, y: Floats, bounds: Bounds, seed: int, interval: int) -> Bools:
    """For each query of Q3, whether its region is one of Q2 by now."""
    xmin, ymin, xmax, ymax = bounds
    column = np.minimum((x - xmin) * (SWITCH_SIDE / (xmax - xmin)), SWITCH_SIDE - 1).astype(np.int64)
    row = np.minimum((ymax - y) * (SWITCH_SIDE / (ymax - ymin)), SWITCH_SIDE - 1).astype(np.int64)
    at_first, turn = _regions(seed)
    region = row * SWITCH_SIDE + column
    intervals = ids // interval if interval else np.zeros(len(ids), np.int64)
    switches = (intervals + SWITCH_TURNS - 1 - turn[region]) // SWITCH_TURNS
    second: Bools = at_first[region] ^ (switches % 2 == 1)
    return second


def _regions(seed: int) -> tuple[Bools, Ints]:
    """Which half of the regions starts as Q2; and the turn of each, with as many regions in each turn."""
    key, regions = key_of(seed, "switch"), range(SWITCH_SIDE**2)
    kinds, turns = (np.argsort([int(bits(key, region, n)) for region in regions]) for n in range(2))
    return kinds % 2 == 1, turns % SWITCH_TURNS


@kernel
def squares(key: Key, ids: Ints, x: Floats, y: Floats, side_max_km: Floats, frame: Floats) -> Floats:
    """(4, n): xmin, ymin, xmax, ymax, cut off at the map's edge. Draw 0 of an id is its side."""
    rects = np.empty((4, len(ids)))
    for i in range(len(ids)):
        half_y = (SIDE_MIN_KM + (side_max_km[i] - SIDE_MIN_KM) * uniform(key, ids[i], 0)) / (2.0 * KM_PER_DEGREE)
        half_x = half_y / max(cosine(y[i]), COS_MIN)
        rects[0, i], rects[1, i] = max(x[i] - half_x, frame[0]), max(y[i] - half_y, frame[1])
        rects[2, i], rects[3, i] = min(x[i] + half_x, frame[2]), min(y[i] + half_y, frame[3])
    return rects


@kernel
def cosine(degrees: float) -> float:
    """The cosine, within 1e-10 up to a right angle, without functions whose last bit differs between machines."""
    square = (degrees * 0.017453292519943295) ** 2
    term = total = 1.0
    for n in range(1, 9):
        term *= -square / ((2 * n - 1) * (2 * n))
        total += term
    return total


@kernel
def keywords(key: Key, ids: Ints, x: Floats, y: Floats, rare: Bools, top: Bools, lexicon: Lexicon) -> Words:
    """(KEYWORDS_MAX, n) words, -1 for none, no two the same. Where `rare`, the first is not at the `top`.

    Draw 1 of an id is their number."""
    found = np.full((KEYWORDS_MAX, len(ids)), -1, np.int32)
    for i in range(len(ids)):
        region = region_of(key, ids[i], x[i], y[i], lexicon.frame)
        wanted = 1 + np.int64(uniform(key, ids[i], 1) * KEYWORDS_MAX)
        have = 0
        if rare[i]:
            word = np.int64(0)
            for n in range(TRIES):
                word = np.int64(word_of(bits(~key, 4 * ids[i], n), region, lexicon))
                if not top[word]:
                    break
            while top[word]:  # once in some ten thousand queries
                word = (word + 1) % len(top)
            found[0, i] = word
            have = 1
        for n in range(TRIES):
            if have == wanted:
                break
            word = np.int64(word_of(bits(~key, 4 * ids[i] + 2, n), region, lexicon))
            fresh = True
            for k in range(have):
                fresh &= word != found[k, i]
            if fresh:
                found[have, i] = word
                have += 1
    return found


def joined_by_or(key: Key, ids: Ints) -> Bools:
    """Whether the words of each query are joined by OR, else by AND. Draw 2 of an id is the operator."""
    found: Bools = draws(key, ids, 2) < 0.5
    return found


def expressions(key: Key, ids: Ints, words: Words, vocabulary: pa.Array, silent: Bools) -> pa.Array:
    """`flood AND river`, or null where `silent`."""
    terms = [vocabulary.take(pa.array(row, mask=row < 0)) for row in words]
    operator = pa.array([" AND ", " OR "]).take(pa.array(joined_by_or(key, ids).astype(np.int8)))
    # Every query has a word here: Arrow 26 would lose a row without any.
    joined = pc.binary_join_element_wise(*terms, operator, null_handling="skip")
    return pc.if_else(pa.array(silent), pa.scalar(None, pa.string()), joined)


@kernel
def draws(key: Key, ids: Ints, n: int) -> Floats:
    """Draw n of each id: in [0, 1)."""
    drawn = np.empty(len(ids))
    for i in range(len(ids)):
        drawn[i] = uniform(key, ids[i], n)
    return drawn
