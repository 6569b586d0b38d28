"""Who is where now, and who is nearest: what the oracle says, whatever the plan, after crashes, and from old state."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import geoswarm as gs
import worlds
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import InputError
from geoswarm.flow.keyed import work
from geoswarm.flow.keyed.operator import Answer, Turn
from geoswarm.flow.keyed.transitions import Transitions, all_inside
from geoswarm.run.oracle.past import ObjectOracle
from geoswarm.run.side_stages import OBJECT_INTERVALS
from geoswarm.store.storage import Storage

WORLD = gs.Contract(columns=30, rows=20, executors=3)
TTL_S, STEP_S = 300.0, 40.0
"""A batch every 40 s, and intervals of 100 s."""
KEEPS = gs.Tuning(keeps_objects=True, object_ttl_s=TTL_S, round_s=50.0)
FOLLOWS = gs.Tuning(object_ttl_s=TTL_S, round_s=50.0)


def batch(seed: int, number: int, rows: int = 250, names: bool = False) -> pa.Table:
    """Objects that come and stop coming; some late, some on one place, some that are areas, some that are refused."""
    rng = np.random.default_rng((seed, number))
    drawn = worlds.wandering_events(
        rng, rows, near=179.0, objects=150, first_id=1000 * number, at_us=int(number * STEP_S * 1e6)
    )
    rows_of = drawn.to_pylist()
    for row in rows_of:
        gone = row["object_id"] is not None and row["object_id"] % 7 == number % 7
        row["object_id"] = None if gone else row["object_id"]
        row["y"] = float(np.round(row["y"] / 2))
        row["x"] = float(np.round(row["x"])) if rng.random() < 0.98 else 999.0
        row["geometry"] = b"POLYGON((0 0, 8 0, 8 6, 0 6, 0 0))" if rng.random() < 0.02 else None
    table = pa.Table.from_pylist(rows_of, schema=drawn.schema.append(pa.field("geometry", pa.binary())))
    if names:
        at = table.schema.get_field_index("object_id")
        table = table.set_column(at, "object_id", table["object_id"].cast(pa.string()))
    return table


def run(
    folder: Path, tables: list[pa.Table], tuning: gs.Tuning, sink: Any = None, first: int = 0, follow: bool = False
) -> None:
    clock = partial(_next_s, count(first))
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(folder), clock=clock) as engine:
        if follow:
            engine.subscribe(1, (-90.0, -45.0, 90.0, 45.0), on="enter", replace=True)
        engine.start(events=tables, sink=sink or gs.sinks.Noop(), available_now=True).wait()


def _next_s(batches: Iterator[int]) -> float:
    """Time stands still within a batch only by accident: no interval may end in between."""
    return 1_000_000.0 + next(batches) * 1e-3


def regions(seed: int, many: int) -> list[pa.Table]:
    rng = np.random.default_rng(seed)
    drawn = worlds.with_predicates(rng, worlds.with_shapes(rng, worlds.operations(rng, many, ids=10**9), snap=1.0))
    for name, values in (("op", pa.array(["register"] * many)), ("expires", pa.nulls(many))):
        drawn = drawn.set_column(drawn.schema.get_field_index(name), name, values)
    return [drawn.slice(i, 1) for i in range(many)]


def check(folder: Path, oracle: ObjectOracle, seed: int, many: int = 20) -> int:
    """Returns how many objects were found."""
    past, rng, found = gs.Past(str(folder)), np.random.default_rng(seed), 0
    everywhere = operation_table([registration(0, worlds.BOUNDS)])
    assert past.objects()["object_id"].to_pylist() == oracle.inside(everywhere)
    for row in regions(seed, many):
        values = row.to_pylist()[0]
        sides = tuple(values[side] for side in ("xmin", "ymin", "xmax", "ymax"))
        shape = values["geometry"]
        rectangle = None if shape is not None or sides[0] is None else sides
        try:
            got = past.objects(rectangle, geometry=shape, predicate=values["predicate"])
        except InputError:
            continue
        want = oracle.inside(row)
        assert got["object_id"].to_pylist() == want, values
        found += len(want)
    for lon, lat in [(180.0, 0.0), (-180.0, 3.0), (0.0, 90.0), (5.0, -90.0), *rng.uniform(-80, 80, (many, 2)).tolist()]:
        k, within_m = int(rng.choice([1, 10, 200])), (None, 2e6)[int(rng.integers(0, 2))]
        got = past.nearest(lon, lat, k, of="objects", within_m=within_m)
        assert got["object_id"].to_pylist() == oracle.nearest((lon, lat), k, within_m or 1e9), (lon, lat, k)
        assert got.schema.names == ["object_id", "ts", "x", "y", "distance_m"]
        found += len(got)
    return found


@pytest.mark.parametrize(("seed", "names", "follow"), [(1, False, False), (2, True, False), (3, True, True)])
def test_who_is_where_is_what_the_oracle_says_batch_by_batch(
    tmp_path: Path, seed: int, names: bool, follow: bool
) -> None:
    """Also where a subscription is what makes objects be followed; under changing strategies and plans of keys; and
    until objects have been forgotten."""
    oracle = ObjectOracle(worlds.BOUNDS, OBJECT_INTERVALS)
    tables = [batch(seed, k, names=names) for k in range(8)]
    for number, table in enumerate(tables):
        now_s = 1_000_000.0 + number * (STEP_S if number < 6 else 3 * TTL_S)
        tuning = (FOLLOWS if follow else KEEPS).model_copy(update={"strategy": ("auto", "ps2-hybrid")[number % 2]})
        with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path), clock=partial(float, now_s)) as engine:
            if follow:
                engine.subscribe(1, (-90.0, -45.0, 90.0, 45.0), on="enter", replace=True)
            if number == 3:
                engine.scale(5)
            engine.start(events=tables[: number + 1], sink=gs.sinks.Noop(), available_now=True).wait()
        oracle.take(table, int(now_s / (TTL_S / (OBJECT_INTERVALS - 1))))
        assert check(tmp_path, oracle, seed + number, 8) > 0


class Fails(gs.sinks.Memory):
    """Fails at a batch, after it has written it, as if the process had ended there."""

    def write(self, matches: Any, batch_id: int) -> None:
        super().write(matches, batch_id)
        if batch_id == 2:
            raise RuntimeError("the process ended")


def test_a_batch_that_did_not_end_moves_no_object_and_run_again_it_moves_each_once(tmp_path: Path) -> None:
    tables, oracle = [batch(5, k) for k in range(4)], ObjectOracle(worlds.BOUNDS, OBJECT_INTERVALS)
    with pytest.raises(RuntimeError, match="the process ended"):
        run(tmp_path, tables, KEEPS, Fails())
    oracle.take(tables[0], 0)
    oracle.take(tables[1], 0)
    assert check(tmp_path, oracle, 6) > 0
    run(tmp_path, tables, KEEPS, first=100)
    oracle.take(tables[2], 0)
    oracle.take(tables[3], 0)
    assert check(tmp_path, oracle, 7) > 0


def test_a_past_that_is_open_sees_the_next_batch_and_the_engine_sees_it_while_it_runs(tmp_path: Path) -> None:
    tables, oracle = [batch(5, k) for k in range(3)], ObjectOracle(worlds.BOUNDS, OBJECT_INTERVALS)
    run(tmp_path, tables[:1], KEEPS)
    past, seen = gs.Past(str(tmp_path)), list[pa.Table]()
    before = past.objects()
    with gs.LocalEngine(WORLD, KEEPS, checkpoint=str(tmp_path), clock=partial(_next_s, count(100))) as engine:
        sink = lambda matches, batch_id: seen.append(engine.objects())  # noqa: E731
        engine.start(events=tables, sink=sink, available_now=True).wait()
    assert len(seen[0]) == len(before), "as of the batch before"
    for table in tables:
        oracle.take(table, 0)
    everywhere = operation_table([registration(0, worlds.BOUNDS)])
    assert past.objects()["object_id"].to_pylist() == oracle.inside(everywhere)
    assert past.objects() != before


@pytest.mark.parametrize("generation", [0, 1])
def test_state_of_before_opens_and_its_objects_are_found_with_the_places_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: int
) -> None:
    """As version 0.1 kept it, without places, and as it was before there were runs and pauses."""
    tables, now = [batch(5, k) for k in range(3)], Transitions(all_inside)
    *older, before = now.kept_before[: generation + 1]
    update, kept = Transitions.update, now.kept

    def update_before(self: Transitions, turn: Turn) -> Answer:
        missing = [pa.nulls(len(turn.held), field.type) for field in list(kept)[len(before) :]]
        held = pa.record_batch([*turn.held.columns, *missing], schema=kept)
        answer = update(_Now(self.lookup, self.window), turn._replace(held=held))
        return answer._replace(kept=answer.kept.select(before.names))

    with monkeypatch.context() as patch:
        patch.setattr(Transitions, "kept", before)
        patch.setattr(Transitions, "kept_before", tuple(older))
        patch.setattr(Transitions, "update", update_before)
        run(tmp_path, tables[:2], FOLLOWS, follow=True)
    work._open_shelves.clear()  # as in another process
    storage, folder = Storage(str(tmp_path)), "keyed/transitions/commits"
    if not generation:
        for name in storage.names(folder):
            body = storage.read_document(f"{folder}/{name}")
            files = [{k: v for k, v in file.items() if k != "generation"} for file in body["files"]]
            storage.write_document(f"{folder}/{name}", body | {"format": 1, "files": files})
    past = gs.Past(str(tmp_path))
    assert bool(len(past.objects())) == bool(len(past.nearest(0.0, 0.0, of="objects"))) == bool(generation)
    run(tmp_path, tables, FOLLOWS, first=100, follow=True)
    seen = tables if generation else tables[2:]
    after, named = past.objects()["object_id"].to_pylist(), {row["object_id"] for t in seen for row in t.to_pylist()}
    assert after
    assert set(after) <= named
    assert len(after) > 100 or not generation


class _Now(Transitions):
    """As it is, whatever is changed above."""

    kept, kept_before = Transitions.kept, Transitions.kept_before


def test_without_the_setting_objects_are_kept_only_while_a_subscription_follows_them(tmp_path: Path) -> None:
    tables = [batch(5, k) for k in range(4)]
    run(tmp_path, tables[:1], FOLLOWS, follow=True)
    past = gs.Past(str(tmp_path))
    assert len(past.objects()) > 50
    with gs.LocalEngine(WORLD, FOLLOWS, checkpoint=str(tmp_path)) as engine:
        engine.cancel(1)
        engine.start(events=tables[:2], sink=gs.sinks.Noop(), available_now=True).wait()
    assert len(past.objects()) == 0
    run(tmp_path, tables[:3], KEEPS)
    assert len(past.objects()) > 50


def test_columns_a_limit_and_pairs_are_given_as_asked(tmp_path: Path) -> None:
    tuning = KEEPS.model_copy(update={"matches": "pairs"})
    sink = gs.sinks.Memory()
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, (-90.0, -45.0, 90.0, 45.0))
        engine.start(events=[batch(5, 0)], sink=sink, available_now=True).wait()
        assert "sub_id" in sink.table().schema.names
        newest = engine.objects(columns=["object_id"], limit=3)
        assert newest["object_id"].to_pylist() == engine.objects()["object_id"].to_pylist()[:3]
        assert newest.schema.names == ["object_id"]
        with pytest.raises(InputError, match="no column speed"):
            engine.objects(columns=["speed"])
        with pytest.raises(InputError, match="limit 0"):
            engine.objects(limit=0)


def test_events_without_objects_cost_nothing_more(tmp_path: Path) -> None:
    """The setting does nothing where there is no `object_id`."""
    table = batch(5, 0).drop_columns(["object_id"])
    with gs.LocalEngine(WORLD, KEEPS, checkpoint=str(tmp_path)) as engine:
        engine.start(events=[table], sink=gs.sinks.Noop(), available_now=True).wait()
    assert not (tmp_path / "keyed" / "transitions" / "commits").exists()
