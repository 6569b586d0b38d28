"""Thesis Fig. 6.23: what Guard's operations take, and how they grow from the thesis' 110 users to a million.

Measures Guard alone, on one thread, in CPU time; what it does to a stream under attack is in the other `guard-fig`s.
Columns, all in microseconds:

    query_update    an operation counted, in a batch as the engine has them (10 000): the thesis' 4
    hotspot         a summary of the 10 000 live queries round a hotspot, not finding them, as the thesis' 1600 does
    feature_update  the summary counted: 278
    detection       a round judged in which ten users attack, features and normalisation included: 667
    calm            the same without an attack
    printed         Algorithm 4 of the thesis, K-Means over all users, in place of ours
    saved           everything as bytes for a restart, once a round
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints
from geoswarm.guard.guard import Guard
from geoswarm.guard.rules import PRINTED, GuardRules
from geoswarm.guard.sensor import HotspotSummary, summarise_hotspot
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale, best, cpu_s
from geoswarm.lab.bench.kit.plots import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class GuardCostSizes(NamedTuple):
    users: tuple[int, ...]
    repeats: int


SIZES = {
    Scale.SMALL: GuardCostSizes((110, 1000, 10_000, 100_000, 1_000_000), 2),
    Scale.FULL: GuardCostSizes((110, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000), 7),
}
BATCH = 10_000
HOTSPOT_QUERIES = 10_000
GANG = 10
THESIS_US = {"query_update": 4.0, "hotspot": 1600.0, "feature_update": 278.0, "detection": 667.0}


def measure(sizes: GuardCostSizes, seed: int, report: Progress) -> Result:
    rows = []
    for users in sizes.users:
        report(f"{users} users")
        rows.append(guard_costs(users, sizes.repeats, seed))
    few, many = rows[0], rows[-1]
    summary = {f"{name}_us": few[f"{name}_us"] for name in _kinds(few)}
    summary |= {f"{name}_us_at_{many['users']}": many[f"{name}_us"] for name in _kinds(many)}
    return Result(rows, summary, {"batch": BATCH, "hotspot_queries": HOTSPOT_QUERIES, "thesis_us": THESIS_US})


def _kinds(row: dict[str, float]) -> list[str]:
    return [key.removesuffix("_us") for key in row if key.endswith("_us")]


def guard_costs(users: int, repeats: int, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    names = pa.array([f"user{i}" for i in range(users)])
    guards = {name: _fill_guard(rules, names, rng) for name, rules in (("ours", GuardRules()), ("printed", PRINTED))}
    guard = guards["ours"]
    taken: dict[str, list[float]] = {}

    def take(name: str, what: Callable[[], object], per: int = 1) -> None:
        started_s = cpu_s()
        what()
        taken.setdefault(name, []).append((cpu_s() - started_s) * 1e6 / per)

    for turn in range(repeats):
        now_s = 60.0 * (turn + 2)
        batch = names.take(pa.array(rng.integers(users, size=BATCH)))
        comes = np.arange(BATCH) % 2 == 0
        take("query_update", lambda: guard.count_operations(batch, comes, ~comes, now_s), BATCH)  # noqa: B023
        who, ages = _live(users, rng)
        take("hotspot", lambda: summarise_hotspot(who, ages))  # noqa: B023
        natural = summarise_hotspot(who, ages)
        take("feature_update", lambda: guard.add_hotspot(natural))  # noqa: B023
        take("calm", lambda: guard.close_round(now_s))  # noqa: B023
        for name, attacked in (("detection", guard), ("printed", guards["printed"])):
            attacked.add_hotspot(natural)
            attacked.add_hotspot(_attack(attacked, names, now_s, turn))
            take(name, lambda: attacked.close_round(now_s + 1))  # noqa: B023
        take("saved", guard.to_bytes)
        for user, _, _ in [*guard.blocked_users(), *guards["printed"].blocked_users()]:
            guard.unblock(user)
            guards["printed"].unblock(user)
    order = ("query_update", "hotspot", "feature_update", "detection", "calm", "printed", "saved")
    return {"users": users, **{f"{name}_us": best(taken[name]) for name in order}}


def _fill_guard(rules: GuardRules, names: pa.StringArray, rng: np.random.Generator) -> Guard:
    """A guard after a round in which every user has asked for something."""
    guard = Guard(rules)
    times = max(1, 50_000 // len(names))
    users = pa.concat_arrays([names] * times)
    everything = np.ones(len(users), np.bool_)
    guard.count_operations(users, everything, ~everything, 0.0)
    guard.add_hotspot(summarise_hotspot(*_live(len(names), rng)))
    guard.close_round(60.0)
    return guard


def _live(users: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    return rng.integers(users, size=HOTSPOT_QUERIES), rng.integers(60, size=HOTSPOT_QUERIES)


def _attack(guard: Guard, names: pa.StringArray, now_s: float, turn: int) -> HotspotSummary:
    """What ten users register is all in this hotspot; not all were in the last, so that K-Means has work."""
    gang = names.slice(0, GANG)
    users = pa.concat_arrays([gang] * 100)
    everything = np.ones(len(users), np.bool_)
    guard.count_operations(users, everything, everything, now_s)
    codes = np.sort(guard.codes(gang))[turn % 2 :]
    counts = np.zeros((len(codes), 6), np.int64)
    counts[:, 0] = 2000
    return HotspotSummary(codes, counts, (0.5, 0.5))


def plot(result: Result) -> "Figure":
    drawn, (axes,) = figure()
    for name in _kinds(result.rows[0]):
        axes.plot([row["users"] for row in result.rows], [row[f"{name}_us"] for row in result.rows], label=name)
    axes.scatter([110] * len(THESIS_US), list(THESIS_US.values()), marker="x", color="black", label="thesis", zorder=3)
    axes.set(xscale="log", yscale="log", xlabel="users", ylabel="microseconds", title="What Guard's operations take")
    axes.legend()
    return drawn
