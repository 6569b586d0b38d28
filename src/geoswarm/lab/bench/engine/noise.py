"""Alerts that a noisy GPS makes up: false enters and exits per true one, with and without `confirm` and a buffer.

Objects move, and the truth is what the engine reports of the moves as they are. Then each fix is off by noise, which
is normal in both directions and new with every fix, and the same fences are asked again: plainly, with `confirm`, with
`confirm` and `cooldown`, and with `confirm` and an `exit_buffer_m` of 20 m. An enter or exit is true if the object
truly entered or left that fence at about that time (within 30 s; of ships, nine minutes), and no other alert has been
taken for it; the others are false, and what no alert is taken for is missed. With more time there would be fewer false
ones, and with less more: an alert that comes late counts as a false one and a missed one. Fences are squares of 100 m
to 1 km about places where objects come by. Taxis are made up; ships are real, where their file is at hand
(`GEOSWARM_DATA`), with a fix about a minute and their own noise in what is taken for the truth.

    false_per_true_20m           taxis, 20 m of noise, `confirm` and a buffer of 20 m
    false_per_true_20m_plain     the same without both
    false_per_true_20m_confirm   with `confirm` only
    false_per_true_20m_cooldown  with `confirm` and `cooldown`
    missed_20m                   share of the true ones that have no alert, with `confirm` and the buffer
    missed_lasting_20m           the same of those between a minute on one side and one on the other; of ships, 15 each
    late_s_20m                   median seconds from the true one to its alert, with `confirm` and the buffer
    ships_...                    the same of ships
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from geoswarm.config import Contract, Tuning
from geoswarm.core.arrays.jit import Floats
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.lab.bench.kit.harness import Progress, Result, Scale
from geoswarm.lab.bench.kit.plots import figure
from geoswarm.lab.workload.moves import DEGREE_M, Moves, drive_taxis, real_ships, ships_at_hand
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.local.sources import from_tables
from geoswarm.run.sinks import Memory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOISES_M = (5.0, 20.0, 50.0)
FENCE_SIDES_M = (100.0, 300.0, 1000.0)
"""A stop, a block or a yard, a quarter or a port."""
BATCH_EVENTS = 40_000
CONTRACT = Contract(columns=2000, rows=2000, executors=2)
TUNING = Tuning(object_ttl_s=1e6, strategy="static-uniform")
PLAIN, CONFIRM, COOLDOWN, BUFFER = "plain", "confirm", "confirm and cooldown", "confirm and buffer"
BUFFER_M = 20.0
"""With a wider one, alerts of taxis that stand beside a border for minutes come so late that they count as false."""
KINDS = ("enter", "exit")


class Fleet(NamedTuple):
    name: str
    moves: Moves
    rules: Mapping[str, Mapping[str, Any]]
    near_s: float
    """An alert within so many seconds of a true one may be taken for it: three times what `confirm` takes."""
    lasts_s: float
    """What lasts so long, a stay or an absence, should not be missed."""


@dataclass(frozen=True)
class NoiseSizes:
    taxis: int
    taxi_s: float
    ships: int
    fences: int


SIZES = {Scale.SMALL: NoiseSizes(100, 3600.0, 40, 100), Scale.FULL: NoiseSizes(1000, 4 * 3600.0, 300, 1000)}
Alerts = Mapping[tuple[int, int, str], list[float]]
"""The seconds of alerts, ascending, by object, fence and kind."""


def measure(sizes: NoiseSizes, seed: int, report: Progress) -> Result:
    rows, summary = list[dict[str, Any]](), dict[str, float]()
    for fleet in _fleets(sizes, seed):
        rng = np.random.default_rng(seed)
        fences = draw_fences(fleet.moves, sizes.fences, rng)
        report(f"{fleet.name}: the truth")
        truth = find_alerts(fleet.moves, fences, {PLAIN: {}})[PLAIN]
        for noise_m in NOISES_M:
            report(f"{fleet.name}: {noise_m:.0f} m of noise")
            found = find_alerts(fleet.moves.blur(noise_m, rng), fences, fleet.rules)
            for rule, alerts in found.items():
                judged = judge(truth, alerts, fleet.near_s, fleet.lasts_s)
                rows.append({"fleet": fleet.name, "noise_m": noise_m, "rule": rule} | judged)
    for row in rows:
        prefix = "" if row["fleet"] == "taxis" else f"{row['fleet']}_"
        noise, rule = f"{row['noise_m']:.0f}m", row["rule"]
        suffix = {PLAIN: "_plain", CONFIRM: "_confirm", COOLDOWN: "_cooldown", BUFFER: ""}[rule]
        summary[f"{prefix}false_per_true_{noise}{suffix}"] = row["false_per_true"]
        if rule == BUFFER:
            summary |= {f"{prefix}{name}_{noise}": row[name] for name in ("missed", "missed_lasting", "late_s")}
    return Result(rows, summary, {**sizes.__dict__})


def _fleets(sizes: NoiseSizes, seed: int) -> Iterator[Fleet]:
    def rules(confirm: str, cooldown: str) -> dict[str, dict[str, Any]]:
        cooled = {"confirm": confirm, "cooldown": cooldown}
        buffered = {"confirm": confirm, "exit_buffer_m": BUFFER_M}
        return {PLAIN: {}, CONFIRM: {"confirm": confirm}, COOLDOWN: cooled, BUFFER: buffered}

    rng = np.random.default_rng(seed)
    taxis = drive_taxis(sizes.taxis, sizes.taxi_s, 2.0, rng)
    yield Fleet("taxis", taxis, rules("10 s", "60 s"), 30.0, 60.0)
    if ships_at_hand():
        yield Fleet("ships", real_ships(sizes.ships, rng), rules("3 fixes", "10 min"), 540.0, 900.0)


def draw_fences(moves: Moves, count: int, rng: np.random.Generator) -> Floats:
    """Squares about fixes, whose middles are up to half a side away, as (n, 4) sides."""
    at = rng.integers(0, len(moves.lon), count)
    half_m = rng.choice(FENCE_SIDES_M, count) / 2
    lat = moves.lat[at] + rng.uniform(-1, 1, count) * half_m / DEGREE_M
    reach = half_m / (DEGREE_M * np.cos(np.radians(lat)))
    lon = moves.lon[at] + rng.uniform(-1, 1, count) * reach
    return np.stack([lon - reach, lat - half_m / DEGREE_M, lon + reach, lat + half_m / DEGREE_M], axis=1)


def find_alerts(moves: Moves, fences: Floats, rules: Mapping[str, Mapping[str, Any]]) -> dict[str, Alerts]:
    """What the engine reports of these moves, by rule."""
    asked = [(rule, fence, kind) for rule in rules for fence in range(len(fences)) for kind in KINDS]
    operations = operation_table(
        registration(number, tuple(fences[fence].tolist()), on=kind, **rules[rule])
        for number, (rule, fence, kind) in enumerate(asked)
    )
    events, matches = moves.events(), Memory()
    batches = [events.slice(first, BATCH_EVENTS) for first in range(0, len(events), BATCH_EVENTS)]
    contract, tuning = (
        Contract(columns=2000, rows=2000, executors=2),
        Tuning(object_ttl_s=1e6, strategy="static-uniform"),
    )
    with (
        TemporaryDirectory() as folder,
        LocalEngine(contract, tuning, checkpoint=folder, clock=lambda: 0.0) as engine,
    ):
        engine.submit(operations)
        engine.start(events=from_tables(*batches), sink=matches, available_now=True).wait()
    found: dict[str, dict[tuple[int, int, str], list[float]]] = {rule: defaultdict(list) for rule in rules}
    told = matches.table().select(["ts", "object_id", "sub_ids"]).sort_by("ts")
    times_s = told["ts"].cast(pa.int64()).to_numpy() / 1e6
    for at_s, name, subs in zip(
        times_s.tolist(), told["object_id"].to_pylist(), told["sub_ids"].to_pylist(), strict=True
    ):
        for sub in subs:
            rule, fence, kind = asked[sub]
            found[rule][name, fence, kind].append(at_s)
    return dict(found)


def judge(truth: Alerts, alerts: Alerts, near_s: float, lasts_s: float) -> dict[str, float]:
    """Both are taken in the order of their time: an alert is for the first true one near it that none is for yet."""
    true = sum(map(len, truth.values()))
    found, late_s, false = set[tuple[tuple[int, int, str], float]](), list[float](), 0
    for key, times in alerts.items():
        open_s = list(truth.get(key, ()))
        for at_s in times:
            while open_s and open_s[0] < at_s - near_s:
                del open_s[0]
            if open_s and open_s[0] <= at_s + near_s:
                late_s.append(at_s - open_s[0])
                found.add((key, open_s.pop(0)))
            else:
                false += 1
    lasting = find_lasting(truth, lasts_s)
    return {
        "true": true,
        "false": false,
        "false_per_true": false / max(1, true),
        "missed": 1 - len(late_s) / max(1, true),
        "missed_lasting": len(lasting - found) / max(1, len(lasting)),
        "late_s": float(np.median(late_s)) if late_s else 0.0,
    }


def find_lasting(truth: Alerts, lasts_s: float) -> set[tuple[tuple[int, int, str], float]]:
    """The true ones before which the object was on one side for so long, and after which on the other."""
    lasting = set[tuple[tuple[int, int, str], float]]()
    for (name, fence, kind), times in truth.items():
        others = truth.get((name, fence, KINDS[1 - KINDS.index(kind)]), ())
        other = np.array([-np.inf, *others, np.inf])
        after = np.searchsorted(other, times, side="right")
        calm = (other[after] - times >= lasts_s) & (times - other[after - 1] >= lasts_s)
        lasting |= {((name, fence, kind), at_s) for at_s, is_calm in zip(times, calm, strict=True) if is_calm}
    return lasting


def plot(result: Result) -> "Figure":
    fleets = list(dict.fromkeys(row["fleet"] for row in result.rows))
    drawn, axes = figure(len(fleets), width_in=4.2)
    for ax, fleet in zip(axes, fleets, strict=True):
        for rule in (PLAIN, CONFIRM, COOLDOWN, BUFFER):
            line = [row for row in result.rows if (row["fleet"], row["rule"]) == (fleet, rule)]
            ax.plot([row["noise_m"] for row in line], [row["false_per_true"] for row in line], label=rule)
        ax.axhline(0.05, color="#BBBBBB", linestyle="--", marker="")
        ax.set(title=fleet, xlabel="noise (m)")
        ax.set_yscale("symlog", linthresh=0.001)
        ax.set_ylim(bottom=0.0)
    axes[0].set_ylabel("false alerts per true one")
    axes[0].legend()
    return drawn
