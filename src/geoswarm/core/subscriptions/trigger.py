"""When a subscription reports, as an attribute: for every event inside, or when an object enters, leaves or stays.

The value is one number, INSIDE, ENTER or EXIT of `model.py`, or the microseconds of a dwell. Transitions are found in
`flow/keyed/transitions.py`.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Bools, Ints, SubIds
from geoswarm.core.subscriptions.attribute_kind import Column, Inspection
from geoswarm.core.subscriptions.rare_numbers import RareNumberAttribute
from geoswarm.core.subscriptions.region import SIDES
from geoswarm.model import CROSS, ENTER, EXIT, INSIDE, PREDICATES

DWELL_S_MAX = 1e9
"""About thirty years: longer than any use, and in microseconds far from the largest integer."""
_WORDS = {"inside": INSIDE, "enter": ENTER, "exit": EXIT, "cross": CROSS}
_CODES = np.array(list(_WORDS.values()), np.int64)
_NUMBER = r"(?:[0-9]{1,10}(?:\.[0-9]{0,30})?|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,2})?"
_PATTERN = rf"^\s*(?:(?P<word>{'|'.join(_WORDS)})|dwell\(\s*(?P<seconds>{_NUMBER})\s*\))\s*$"


class FollowRules(NamedTuple):
    """What some subscriptions are on, and when a transition counts for them (`alert_rules.py`, `exit_buffer.py`)."""

    on: Ints
    confirm: Ints
    cooldown_us: Ints
    buffer_mm: Ints

    @classmethod
    def inside(cls, count: int) -> "FollowRules":
        """Those of subscriptions that follow no objects."""
        return cls(np.full(count, INSIDE, np.int64), *np.zeros((3, count), np.int64))


RulesLookup = Callable[[SubIds], FollowRules]
"""Takes ascending ids of subscriptions, and returns their rules; those of `inside` if no live subscription has the id.
`View.follow_rules` in `store/subscriptions/view.py` is one."""


class OnAttribute(RareNumberAttribute):
    name = "on"
    default = INSIDE
    columns = (Column("on", pa.string(), "inside, enter, exit, cross or dwell(SECONDS); null: inside"),)
    reasons: ClassVar[Mapping[str, str]] = {
        "on": "what the subscription is on cannot be read, or does not go with its predicate, or has no place"
    }

    def parse(self, inspection: Inspection) -> Ints:
        column, count = inspection.rows.column("on"), len(inspection.rows)
        codes = np.full(count, INSIDE, np.int64)
        if column.null_count == count:
            return codes
        given = np.flatnonzero(~inspection.is_null("on"))
        # As bytes: text that is not UTF-8 must not stop the stream.
        parts = pc.extract_regex(column.take(pa.array(given)).cast(pa.binary()), _PATTERN)
        words = pc.index_in(parts.field("word"), pa.array([word.encode() for word in _WORDS]))
        counted = pc.greater(pc.binary_length(parts.field("seconds")), 0).fill_null(False)
        seconds = pc.if_else(counted, parts.field("seconds"), b"0").cast(pa.string()).cast(pa.float64()).to_numpy()
        fine = pc.is_valid(parts).to_numpy(zero_copy_only=False) & (seconds <= DWELL_S_MAX)
        dwells = fine & words.is_null().to_numpy(zero_copy_only=False)
        codes[given] = _CODES[words.fill_null(0).to_numpy()]
        codes[given[dwells]] = np.rint(seconds[dwells] * 1e6)
        wrong = np.zeros(count, np.bool_)
        wrong[given[~fine]] = True
        detail = "subscription {sub_id} is on {on!r}: send inside, enter, exit, cross or dwell(SECONDS), with "
        detail += f"SECONDS from 0 to {DWELL_S_MAX:.0f}"
        inspection.refusals.turn_away(inspection.puts & wrong, "on", detail)
        self._refuse_of_ways(inspection, inspection.puts & (codes == CROSS))
        return codes

    def _refuse_of_ways(self, inspection: Inspection, crosses: Bools) -> None:
        """A way is a line, so no area that a region could lie in; and every way begins in the world."""
        nowhere = np.logical_and.reduce([inspection.is_null(name) for name in (*SIDES, "geometry")])
        detail = (
            "subscription {sub_id} is on cross with keywords {keywords!r} and without a place: every way begins in "
        )
        detail += "the world, so none crosses it; send a region"
        inspection.refusals.turn_away(crosses & nowhere & ~inspection.is_null("keywords"), "on", detail)
        predicates = inspection.rows.column("predicate").cast(pa.binary())
        plain = pc.match_substring_regex(predicates, rf"^\s*{PREDICATES[0]}\s*$").fill_null(True)
        detail = "subscription {sub_id} is on cross with predicate {predicate!r}: a way only intersects a region, so "
        detail += "leave the predicate out"
        inspection.refusals.turn_away(crosses & ~plain.to_numpy(zero_copy_only=False), "on", detail)

    def show(self, values: Ints) -> dict[str, pa.Array]:
        words = {code: word for word, code in _WORDS.items()}
        texts = [words.get(code) or f"dwell({code / 1e6!r})" for code in values.tolist()]
        return {"on": pa.array(texts, pa.string())}


def is_on_inside(inspection: Inspection) -> Bools:
    """The rows that are on `inside`, because they say so or say nothing."""
    return is_on("inside", inspection) | inspection.is_null("on")


def is_on(word: str, inspection: Inspection) -> Bools:
    """The rows that say so."""
    matched = pc.match_substring_regex(inspection.rows.column("on").cast(pa.binary()), rf"^\s*{word}\s*$")
    return np.asarray(matched.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
