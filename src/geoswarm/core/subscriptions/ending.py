"""How a subscription ends by itself, and what is told of its beginning and its end: `max_events` and `notify`.

`run/max_events.py` counts, `store/subscriptions/ends.py` remembers who has ended, `flow/stages/ends.py` tells it. What
an object is doing is told in `flow/keyed/transitions.py`.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.subscriptions.attribute_kind import Column, Inspection
from geoswarm.core.subscriptions.rare_numbers import RareNumberAttribute
from geoswarm.core.subscriptions.trigger import is_on, is_on_inside
from geoswarm.errors import InputError
from geoswarm.parameters import suggestion

MAX_EVENTS_MAX = 1_000_000_000
"""More than a stream gives one subscriber in a year: so many are no limit."""
TELLS_ENDED, TELLS_INITIAL = 1, 2
NOTIFY_WORDS = {"ended": TELLS_ENDED, "initial": TELLS_INITIAL}
"""What a subscription may ask to be told, by the bit of its code."""


class MaxEventsAttribute(RareNumberAttribute):
    """0: there is no limit."""

    name = "max_events"
    default = 0
    columns = (Column("max_events", pa.int64(), "alerts of events after which it ends; null: it does not end by them"),)
    reasons: ClassVar[Mapping[str, str]] = {"max_events": "max_events is no limit, or there is nothing to count"}

    def parse(self, inspection: Inspection) -> Ints:
        column, given = inspection.rows.column(self.name), inspection.puts & ~inspection.is_null(self.name)
        values: Ints = column.fill_null(0).to_numpy()
        if not given.any():
            return np.zeros(len(values), np.int64)
        fine, turn_away = (values >= 1) & (values <= MAX_EVENTS_MAX), inspection.refusals.turn_away
        who = "max_events of subscription {sub_id} is {max_events}"
        detail = f"{who}: write 1 to {MAX_EVENTS_MAX}, or leave it out"
        turn_away(given & ~fine, self.name, detail)
        detail = f"{who}, and it has an aggregate, which gives answers and no alerts: leave one of the two out"
        turn_away(given & ~inspection.is_null("aggregate"), self.name, detail)
        detail = f"{who}, and it asks for the past, of which nothing is counted: leave since or max_events out"
        turn_away(given & ~inspection.is_null("since"), self.name, detail)
        refuse_without_alerts(inspection, given, self.name)
        return np.where(fine & given, values, 0)

    def show(self, values: Ints) -> dict[str, pa.Array]:
        return {self.name: pa.array(values, mask=values == 0)}


class CountedFromAttribute(RareNumberAttribute):
    """The version in which a subscription with `max_events` was registered or replaced, by which what was counted
    before is told apart. The store sets it; 0: nothing is counted."""

    name = "counted_from"
    default = 0
    columns = ()

    def parse(self, inspection: Inspection) -> Ints:
        return np.zeros(len(inspection.rows), np.int64)

    def show(self, values: Ints) -> dict[str, pa.Array]:
        return {}


class NotifyAttribute(RareNumberAttribute):
    """The sum of `NOTIFY_WORDS`; 0: it is told of events only."""

    name = "notify"
    default = 0
    columns = (Column("notify", pa.string(), f"told beside events: {', '.join(NOTIFY_WORDS)}; null: nothing"),)
    reasons: ClassVar[Mapping[str, str]] = {"notify": "notify cannot be read, or there is nothing to be told"}

    def parse(self, inspection: Inspection) -> Ints:
        column, count = inspection.rows.column(self.name), len(inspection.rows)
        values = np.zeros(count, np.int64)
        if column.null_count == count:
            return values
        # As bytes: text that is not UTF-8 must not stop the stream.
        coded = column.cast(pa.binary()).dictionary_encode()
        codes, whys = list[int](), list[str]()
        for text in coded.dictionary.to_pylist():
            try:
                code, why = read_notify(text.decode(errors="replace")), ""
            except InputError as error:
                code, why = 0, str(error)
            codes.append(code)
            whys.append(why)
        given, at = ~inspection.is_null(self.name), coded.indices.fill_null(0).to_numpy()
        values[given] = np.array(codes, np.int64)[at[given]]
        faulty = np.flatnonzero(inspection.puts & given & np.array([bool(why) for why in whys])[at])
        detail = "notify of subscription {sub_id} is {notify!r}: {why}"
        inspection.refusals.turn_away_each(faulty, self.name, detail, [whys[code] for code in at[faulty].tolist()])
        self._refuse_initial(inspection, inspection.puts & (values & TELLS_INITIAL > 0))
        refuse_without_alerts(inspection, inspection.puts & given, self.name)
        return values

    def _refuse_initial(self, inspection: Inspection, chosen: Bools) -> None:
        """Who is inside is told by a last place: of stays, and where nothing else is asked of an event."""
        who, turn_away = "notify of subscription {sub_id} is {notify!r}, and it ", inspection.refusals.turn_away
        stays = "in which no object has a stay: send on = enter, exit or dwell(SECONDS), or leave initial out"
        turn_away(chosen & is_on_inside(inspection), self.name, f"{who}is on inside, {stays}")
        turn_away(chosen & is_on("cross", inspection), self.name, f"{who}is on cross, {stays}")
        if inspection.stream is not None and inspection.stream.reorders:
            detail = "notify of subscription {sub_id} is {notify!r}, and events are put in order (reorder_s), in which "
            detail += "who is inside is known later: leave initial out, or set reorder_s = 0"
            turn_away(chosen, self.name, detail)
        for column, lacks in (("keywords", "text"), ("where", "columns")):
            detail = f"{who}has {column} {{{column}!r}}: a last place has no {lacks}, so leave {column} or initial out"
            turn_away(chosen & ~inspection.is_null(column), self.name, detail)

    def show(self, values: Ints) -> dict[str, pa.Array]:
        return {self.name: pa.array([show_notify(code) for code in values.tolist()], pa.string())}


def read_notify(text: str) -> int:
    """The code of words such as "ended, initial"."""
    words, code = [word.strip() for word in text.split(",")], 0
    example = f'write "{", ".join(NOTIFY_WORDS)}"'
    if words == [""]:
        raise InputError(f"nothing is named: {example}, or leave notify out")
    for word in words:
        if word not in NOTIFY_WORDS:
            near = suggestion(word, list(NOTIFY_WORDS)) if word else "a comma has no word beside it"
            raise InputError(f"{word!r} cannot be told ({near}): {example}")
        if code & NOTIFY_WORDS[word]:
            raise InputError(f"{word} is named twice: name it once")
        code |= NOTIFY_WORDS[word]
    return code


def show_notify(code: int) -> str | None:
    return ", ".join(word for word, bit in NOTIFY_WORDS.items() if code & bit) or None


def notify_text(words: str | Iterable[str]) -> str:
    """The column of words; a text is one already."""
    return words if isinstance(words, str) else ", ".join(map(str, words))


def refuse_without_alerts(inspection: Inspection, chosen: Bools, name: str) -> None:
    """Refuse in a stream whose rows are no alerts. Where none runs, its start asks."""
    if inspection.stream is not None and not inspection.stream.gives_alerts:
        detail = f"{name} of subscription {{sub_id}} is {{{name}}}, and the stream gives no alerts: "
        detail += f'set [tuning] matches = "alerts", or leave {name} out'
        inspection.refusals.turn_away(chosen, name, detail)
