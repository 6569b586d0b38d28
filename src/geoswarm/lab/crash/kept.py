"""The kept events of a scenario's run beside brute force: what queries about the past lost, or found and should not.

`scenario.py` compares the matches of a run; this the events that `Tuning(window=...)` has kept of it (`run/past.py`).
The queries are the whole world, and what the scenario's subscriptions ask for.
"""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from geoswarm.config import WindowSettings
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.lab.crash.scenario import CONTRACT, EVENTS_SCHEMA, START, STEP_S, Scenario, batches_of
from geoswarm.run.oracle.past import PastOracle
from geoswarm.run.past import Past
from geoswarm.store.kept.files import run_names, span_of
from geoswarm.store.storage import Storage


class KeptComparison(NamedTuple):
    batches: int
    """That were kept, expired ones too: as many as were committed, or one more that is about to be."""
    events: int
    """That the queries should find, all together."""
    lost: int
    wrong: int
    """Found twice, expired, or not asked for."""


def compare_kept(scenario: Scenario, checkpoint: Path, window: WindowSettings, queries: int) -> KeptComparison:
    """Ask the kept events of a run that has ended or was killed; `queries` beside that for all of them."""
    batches = span_of(run_names(Storage(str(checkpoint)))[-1])[1] + 1
    oracle = PastOracle(CONTRACT.bounds, window)
    for number, batch in enumerate(batches_of(checkpoint)[:batches]):
        tables = [scenario.events(n) for n in batch.events]
        events = pa.concat_tables(tables) if tables else EVENTS_SCHEMA.empty_table()
        oracle.take(events, int((START.timestamp() + number * STEP_S) * 1e6))
    everything = operation_table([registration(0, CONTRACT.bounds)])
    asked = [everything, *_readable(oracle, scenario, queries)]
    past, events, lost, wrong = Past(str(checkpoint)), 0, 0, 0
    for row in asked:
        want, got = Counter(oracle.query(row) or ()), Counter(_find(past, row))
        events += want.total()
        lost += (want - got).total()
        wrong += (got - want).total()
    return KeptComparison(batches, events, lost, wrong)


def _readable(oracle: PastOracle, scenario: Scenario, many: int) -> list[pa.Table]:
    """Registrations of the scenario that no oracle refuses, and that ask for what a query may ask for: a region, words
    and a predicate."""
    found, number = list[pa.Table](), 0
    while len(found) < many:
        drawn = scenario.operations(number)
        rows = [drawn.slice(i, 1) for i in range(len(drawn)) if drawn["op"][i].as_py() == "register"]
        plain = [row for row in rows if not any(row[name][0].as_py() for name in ("on", "where", "objects"))]
        found += [row for row in plain if oracle.query(_lasting(row)) is not None]
        number += 1
    return [_lasting(row) for row in found[:many]]


def _lasting(row: pa.Table) -> pa.Table:
    at = row.schema.get_field_index("expires")
    return row.set_column(at, row.schema.field(at), pa.nulls(1, row.schema.field(at).type))


def _find(past: Past, row: pa.Table) -> list[int]:
    (asked,) = row.to_pylist()
    sides = (asked["xmin"], asked["ymin"], asked["xmax"], asked["ymax"])
    shape, given = asked["geometry"], {name: asked[name] for name in ("keywords", "predicate")}
    ids: list[int] = past.query(None if shape else sides, geometry=shape, **given).events["event_id"].to_pylist()
    return ids
