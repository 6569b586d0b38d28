"""When a transition is believed, and how often it is reported: `confirm` and `cooldown`, for subscriptions that are on
enter, exit or dwell.

A confirm is one number: so many fixes, or as a negative number so many microseconds; 0: the first fix is believed. A
cooldown is microseconds. `flow/keyed/transitions.py` has the rules, `trigger.py` what a subscription is on.
"""

import re
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from geoswarm.config import KEPT_SECONDS
from geoswarm.core.arrays.jit import Bools, Ints
from geoswarm.core.subscriptions.attribute_kind import Column, Inspection
from geoswarm.core.subscriptions.rare_numbers import RareNumberAttribute
from geoswarm.core.subscriptions.trigger import is_on, is_on_inside
from geoswarm.errors import InputError

CONFIRM_FIXES_MAX = 1000
"""At one fix a second a quarter of an hour: more is a time that was meant, or a stay."""
CONFIRM_S_MAX = 86_400.0
"""A day. Objects are forgotten after `object_ttl_s` without events, so a longer run would hardly ever end."""
COOLDOWN_S_MAX = 30 * 86_400.0
"""A month: a longer pause is a subscription that should be cancelled."""
_UNITS = KEPT_SECONDS | {f"{name}s": seconds for name, seconds in KEPT_SECONDS.items() if len(name) > 1}
_AMOUNT = re.compile(r"\s*(?P<number>[0-9]{1,15}(?:\.[0-9]{1,15})?)\s*(?P<unit>[A-Za-z]+)\s*")


def read_confirm(text: str) -> int:
    """The number of a confirm such as "3 fixes" or "20 s"."""
    number, unit, at = _amount(text, '"3 fixes" or "20 s"')
    if unit not in ("fix", "fixes"):
        return -_microseconds(text, "confirm", CONFIRM_S_MAX, ' or "3 fixes"')
    if "." in number:
        raise InputError(f"{number} is no whole number of fixes: write {max(1, round(float(number)))} fixes")
    count = int(number)
    if not count:
        raise InputError("a run of 0 fixes is none: write 1 fix or more, or leave confirm out")
    if count > CONFIRM_FIXES_MAX:
        raise InputError(f'{count} fixes are more than {CONFIRM_FIXES_MAX}: write fewer, or a time such as "20 s"')
    if unit == "fix" and count > 1:
        raise InputError(f"at character {at}: {unit!r} is one: write {count} fixes")
    return count


def read_cooldown(text: str) -> int:
    """The microseconds of a cooldown such as "60 s"."""
    return _microseconds(text, "cooldown", COOLDOWN_S_MAX)


def show_confirm(code: int) -> str | None:
    if code > 0:
        return f"{code} {'fix' if code == 1 else 'fixes'}"
    return show_cooldown(-code)


def show_cooldown(cooldown_us: int) -> str | None:
    seconds, rest = divmod(cooldown_us, 1_000_000)
    decimals = f".{rest:06d}".rstrip("0.")
    return f"{seconds}{decimals} s" if cooldown_us else None


def _microseconds(text: str, name: str, most_s: float, other: str = "") -> int:
    number, unit, at = _amount(text, f'"20 s"{other}')
    if unit not in _UNITS:
        known = ", ".join(KEPT_SECONDS)
        raise InputError(f"at character {at}: {unit!r} is no unit of time: use one of {known}{other}")
    length_us = round(float(number) * _UNITS[unit] * 1e6)
    if not length_us:
        raise InputError(f"{text.strip()} is no time: write a microsecond or more, or leave {name} out")
    if length_us > most_s * 1e6:
        raise InputError(f"{text.strip()} is longer than {most_s:.0f} s: write a shorter time")
    return length_us


def _amount(text: str, example: str) -> tuple[str, str, int]:
    """A number, its unit in small letters, and the character, from 1, at which the unit begins."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        bad = re.match(r"\s*(?:[0-9]+(?:\.[0-9]+)?)?\s*[A-Za-z]*\s*", text)
        at = min(bad.end() if bad and re.match(r"\s*[0-9]", text) else len(text) - len(text.lstrip()), len(text))
        what = repr(text[at]) if at < len(text) else "the end"
        raise InputError(f"at character {at + 1}: {what} where a number and a unit must be: write {example}")
    return found["number"], found["unit"].lower(), found.start("unit") + 1


class _AlertRule(RareNumberAttribute):
    """A rule that is read from a short text, and only goes with enter, exit and dwell."""

    default = 0
    is_for_ways = True
    """Whether it also goes with cross."""

    def __init__(self, name: str, meaning: str, read: Callable[[str], int], show: Callable[[int], str | None]) -> None:
        self.name, self._read, self._show = name, read, show
        self.columns = (Column(name, pa.string(), meaning),)

    def parse(self, inspection: Inspection) -> Ints:
        column, count = inspection.rows.column(self.name), len(inspection.rows)
        values = np.zeros(count, np.int64)
        if column.null_count == count:
            return values
        # As bytes: text that is not UTF-8 must not stop the stream.
        coded = column.cast(pa.binary()).dictionary_encode()
        numbers, whys = list[int](), list[str]()
        for text in coded.dictionary.to_pylist():
            try:
                number, why = self._read(text.decode(errors="replace")), ""
            except InputError as error:
                number, why = 0, str(error)
            numbers.append(number)
            whys.append(why)
        given, codes = ~inspection.is_null(self.name), coded.indices.fill_null(0).to_numpy()
        values[given] = np.array(numbers, np.int64)[codes[given]]
        self._refuse_alone(inspection, given)
        if not self.is_for_ways:
            self._refuse_on_cross(inspection, given)
        faulty = np.flatnonzero(inspection.puts & given & np.array([bool(why) for why in whys])[codes])
        detail = f"{self.name} of subscription {{sub_id}} is {{{self.name}!r}}: {{why}}"
        inspection.refusals.turn_away_each(faulty, self.name, detail, [whys[code] for code in codes[faulty].tolist()])
        return values

    def _refuse_on_cross(self, inspection: Inspection, given: Bools) -> None:
        detail = (
            f"subscription {{sub_id}} has {self.name} {{{self.name}!r}} and is on cross, which has no runs of fixes: "
        )
        detail += f"leave {self.name} out"
        inspection.refusals.turn_away(inspection.puts & given & is_on("cross", inspection), self.name, detail)

    def _refuse_alone(self, inspection: Inspection, given: Bools) -> None:
        detail = f"subscription {{sub_id}} has {self.name} {{{self.name}!r}} and is on inside, which reports every "
        detail += f"event: send on = enter, exit or dwell(SECONDS) with it, or leave {self.name} out"
        inspection.refusals.turn_away(inspection.puts & given & is_on_inside(inspection), self.name, detail)

    def show(self, values: Ints) -> dict[str, pa.Array]:
        return {self.name: pa.array([self._show(value) for value in values.tolist()], pa.string())}


class ConfirmAttribute(_AlertRule):
    is_for_ways = False
    reasons: ClassVar[Mapping[str, str]] = {
        "confirm": "confirm cannot be read, is too long, or there is nothing for it"
    }

    def __init__(self) -> None:
        meaning = "of a transition: how long it must last before it counts, such as 3 fixes or 20 s; null: not at all"
        super().__init__("confirm", meaning, read_confirm, show_confirm)


class CooldownAttribute(_AlertRule):
    reasons: ClassVar[Mapping[str, str]] = {
        "cooldown": "cooldown cannot be read, is too long, or there is nothing for it"
    }

    def __init__(self) -> None:
        meaning = "of a transition: no further one of an object for so long, such as 60 s; null: every one"
        super().__init__("cooldown", meaning, read_cooldown, show_cooldown)
