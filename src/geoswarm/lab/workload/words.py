"""Words of a made-up language: how they are spelt, how often they are used, and how that differs from place to place.

Knows neither posts nor queries; `posts.py` asks for both. Word 0 is the most frequent one and the shortest, as in any
language, and every word ends in a vowel, so none reads AND, OR or NOT.

    place ──► a little way off ──► region ─┐
                                           ├──► the region's own order ──► word      a share of the words
    chance ──► rank (by the power law) ────┴──► word = rank                          the others, common to all

The map is cut into `REGIONS × REGIONS` regions, each with an order of the vocabulary of its own: the top 1 % among
themselves, and all others among themselves, so that a word that is rare on the whole is nowhere among the commonest.
A post speaks as the region of a place near its own, so neighbours share words, and far regions only the common ones.

PS2Stream §VI-A: terms follow a power law; §IV-B: text similarity between places decides how to partition.
"""

from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from geoswarm.core.arrays.jit import Bytes, Floats, Ints, kernel
from geoswarm.lab.workload.cities import Bounds
from geoswarm.lab.workload.draw import DRAWS_PER_ID, Key, alias_table, bell, bits, key_of, reflect, uniform

CONSONANTS, VOWELS = "bcdfghjklmnprstvz", "aeiou"
SYLLABLES = len(CONSONANTS) * len(VOWELS)
WORDS_MAX = SYLLABLES + SYLLABLES**2 + SYLLABLES**3
"""Up to three syllables: a word and its space fit into eight bytes."""
WIDTH = 8

REGIONS = 8
"""Regions per side of the map: as coarse as the partitions of a few workers, which can then differ in their words."""
REACH = 0.25
"""The standard deviation, in regions, of the distance to the region whose words a post uses."""
WORDS_PER_POST = (10, 15)
TOP_SHARE = 0.01
"""The share of the vocabulary that each region orders among itself as its most frequent words."""

_COIN = 1 << 20
_PARTS = 1 << 12
_S12, _S32, _LOW12, _LOW20 = np.uint64(12), np.uint64(32), np.uint64(_PARTS - 1), np.uint64(_COIN - 1)


Slots = npt.NDArray[np.int32]


class WordShares(NamedTuple):
    """How often the words of a vocabulary are used, by rank from 0: 1 / (rank + 1 + shift) ^ exponent."""

    words: int
    exponent: float
    shift: float
    """Mandelbrot's shift: as if so many stop words had been left out."""

    def by_rank(self) -> Floats:
        weights = np.power(np.arange(self.words) + 1.0 + self.shift, -self.exponent)
        shares: Floats = weights / weights.sum()
        return shares


class Lexicon(NamedTuple):
    letters: Bytes  # (words, WIDTH): the word, then a space
    sizes: Bytes  # letters of each word, its space counted
    slots: Slots  # (words, 2): a draw of 2^20 below the first keeps the slot's own rank, others take the second
    top: int  # words of the top 1 %
    orders: Ints  # (regions, 4): step and start for the top, step and start for the others
    frame: Floats  # (xmin, ymin, xmax, ymax) of the map
    regional: int  # of 4096: words that come from the region's own order


@lru_cache(maxsize=4)
def lexicon(seed: int, bounds: Bounds, shares: WordShares, regional_share: float) -> Lexicon:
    words, top = shares.words, int(shares.words * TOP_SHARE)
    letters, sizes = _spellings(words)
    coin, alias = alias_table(shares.by_rank())
    sides = [
        [_order(seed, f"dialect{n}", region, size) for region in range(REGIONS**2)]
        for n, size in enumerate((top, words - top))
    ]
    return Lexicon(
        letters,
        sizes,
        np.stack([np.round(coin * _COIN), alias], axis=1).astype(np.int32),
        top,
        np.hstack(sides),
        np.array(bounds, np.float64),
        round(regional_share * _PARTS),
    )


def frequencies(lexicon: Lexicon, shares: Floats, weights: Floats) -> Floats:
    """The share of each word in all texts; `weights` are the shares of the regions."""
    regional = lexicon.regional / _PARTS
    return (1.0 - regional) * shares + regional * _regional_shares(lexicon, shares, weights / weights.sum())


@lru_cache(maxsize=4)
def vocabulary(words: int) -> pa.Array:
    """The words, by number."""
    letters, sizes = _spellings(words)
    return pa.array([bytes(row[: n - 1]).decode() for row, n in zip(letters, sizes, strict=True)], pa.string())


@lru_cache(maxsize=4)
def _spellings(words: int) -> tuple[Bytes, Bytes]:
    """Syllables as digits, all words of one syllable first, then all of two, then of three."""
    number = np.arange(words)
    syllables = 1 + (number >= SYLLABLES) + (number >= SYLLABLES + SYLLABLES**2)
    rest = number - np.array([0, 0, SYLLABLES, SYLLABLES + SYLLABLES**2])[syllables]
    letters: Bytes = np.full((words, WIDTH), ord(" "), np.uint8)
    consonants, vowels = (np.frombuffer(text.encode(), np.uint8) for text in (CONSONANTS, VOWELS))
    for place in range(3):
        spoken = syllables > place
        rest, digit = np.divmod(rest, SYLLABLES)
        letters[spoken, 2 * place] = consonants[digit[spoken] % len(CONSONANTS)]
        letters[spoken, 2 * place + 1] = vowels[digit[spoken] // len(CONSONANTS)]
    return letters, (2 * syllables + 1).astype(np.uint8)


def _order(seed: int, purpose: str, region: int, size: int) -> tuple[int, int]:
    """A step that visits each of the words once, and the word to start from."""
    key = key_of(seed, purpose)
    step = 1 + int(bits(key, region, 0)) % size
    while gcd(step, size) != 1:
        step += 1
    return step, int(bits(key, region, 1)) % size


@kernel
def region_of(key: Key, row_id: int, x: float, y: float, frame: Floats) -> int:
    """Draws 6 and 7 of an id: the region that a post at this place speaks as."""
    width, height = frame[2] - frame[0], frame[3] - frame[1]
    x = reflect(x + bell(key, row_id, 6) * (REACH / REGIONS) * width, frame[0], frame[2])
    y = reflect(y + bell(key, row_id, 7) * (REACH / REGIONS) * height, frame[1], frame[3])
    column = min(int((x - frame[0]) * REGIONS / width), REGIONS - 1)
    row = min(int((frame[3] - y) * REGIONS / height), REGIONS - 1)
    return row * REGIONS + column


@kernel
def regions_of(key: Key, ids: Ints, x: Floats, y: Floats, frame: Floats) -> Ints:
    regions = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        regions[i] = region_of(key, ids[i], x[i], y[i], frame)
    return regions


@kernel
def word_of(z: Key, region: int, lexicon: Lexicon) -> int:
    """64 bits of chance to a word: 32 for the slot, 20 for its coin, 12 for whose order counts.

    By arithmetic, since no processor can guess which way a branch on chance will go; and in one piece: with a call
    that may fail in the middle, numba counts references to the arrays for every word, and takes four times as long."""
    words, top = len(lexicon.sizes), lexicon.top
    slot = np.int64(((z >> _S32) * np.uint64(words)) >> _S32)
    leaves = np.int64(np.int64((z >> _S12) & _LOW20) >= lexicon.slots[slot, 0])
    rank = slot + leaves * (lexicon.slots[slot, 1] - slot)
    part = np.int64(rank >= top)
    first, size = part * top, top + part * (words - 2 * top)
    product = lexicon.orders[region, 2 * part] * (rank - first) + lexicon.orders[region, 2 * part + 1]
    own = first + product - np.int64(product / size) * size  # the remainder, exact below 2^53
    regional = np.int64(np.int64(z & _LOW12) < lexicon.regional)
    return int(rank + regional * (own - rank))


@kernel
def write(
    key: Key, ids: Ints, x: Floats, y: Floats, lexicon: Lexicon, text: Bytes, ends: npt.NDArray[np.int32]
) -> None:
    """The words of each post into `text`; post i is text[ends[i] : ends[i + 1]]. Draw 5 of an id is its length."""
    at = 0
    ends[0] = 0
    words = np.empty(2 * int(DRAWS_PER_ID), np.int64)
    for i in range(len(ids)):
        region = region_of(key, ids[i], x[i], y[i], lexicon.frame)
        count = WORDS_PER_POST[0] + int(uniform(key, ids[i], 5) * (WORDS_PER_POST[1] - WORDS_PER_POST[0] + 1))
        for k in range(count):  # a loop of its own, so that the looking up does not wait for the writing
            words[k] = word_of(bits(~key, 2 * ids[i], k), region, lexicon)  # another key and twice the id: 16 draws
        for k in range(count):
            for b in range(WIDTH):  # always all eight; the next word covers what was too much
                text[at + b] = lexicon.letters[words[k], b]
            at += int(lexicon.sizes[words[k]])
        at -= 1
        ends[i + 1] = at


def _regional_shares(lexicon: Lexicon, shares: Floats, weights: Floats) -> Floats:
    """The share of each word when all of them come from the regions' own orders."""
    total = np.zeros(len(shares))
    for part, (first, end) in enumerate(((0, lexicon.top), (lexicon.top, len(shares)))):
        for region in np.flatnonzero(weights):
            step, start = lexicon.orders[region, 2 * part : 2 * part + 2]
            words = first + (step * np.arange(end - first) + start) % (end - first)
            total[words] += weights[region] * shares[first:end]
    return total
