"""The collection of subscriptions equals the oracle's at every version, whatever is asked and however it is paged."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import shapely

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.core.subscriptions.attributes import operation_batch
from geoswarm.core.subscriptions.region import SIDES
from geoswarm.core.where.read import read_where
from geoswarm.errors import CorruptState, InputError
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.regions import Region, read_region
from geoswarm.run.oracle.where import chosen_rows
from geoswarm.store.checkpoint import Checkpoint
from geoswarm.store.manifest import newest
from geoswarm.store.storage import Storage
from geoswarm.store.subscriptions.fresh_ids import fresh_id
from geoswarm.store.subscriptions.view import View
from worlds import (
    BOUNDS,
    operations,
    rectangles,
    with_aggregates,
    with_keywords,
    with_on,
    with_payloads,
    with_predicates,
    with_shapes,
)

CONTRACT = Contract(columns=90, rows=70, executors=5)
EAGER = Tuning(deltas_max=2, segment_subs_max=1000, dead_share_max=0.2)
CONDITIONS = [
    "user = 'benjamin'",
    "\"on\" LIKE 'dwell%' OR aggregate IS NOT NULL",
    "NOT (xmin BETWEEN -90 AND 90) AND sub_id > 100",
    "payload IS NULL AND keywords IS NULL",
    "expires < '1970-01-01T00:00:00.000040' AND predicate = 'intersects'",
    "geometry IS NOT NULL AND payload LIKE '%route%'",
]


class World:
    """A checkpoint and the oracle, which are given the same operations, row by row."""

    def __init__(self, folder: Path, seed: int, *, plain: bool = False) -> None:
        self.rng, self.oracle, self.now_us, self.plain = np.random.default_rng(seed), Oracle(BOUNDS), 0, plain
        self.held = Checkpoint(str(folder), CONTRACT, EAGER)
        self.asked = gs.Subscriptions(str(folder), clock=lambda: self.now_us / 1e6)
        self.said: dict[int, dict[str, Any]] = {}

    def step(self, rows: int = 150) -> None:
        self.now_us += 1
        some = operations(self.rng, rows, ids=400, now_us=self.now_us)
        if not self.plain:
            some = with_predicates(self.rng, with_keywords(self.rng, with_shapes(self.rng, some), share=0.3))
            some = with_aggregates(self.rng, with_on(self.rng, some))
        some = with_payloads(self.rng, some)
        table = pa.Table.from_batches([operation_batch({n: some[n].combine_chunks() for n in some.schema.names})])
        for place, row in enumerate(table.to_pylist()):
            if self.oracle.operate(table.slice(place, 1), self.now_us) == 0:
                self.said[row["sub_id"]] = row
        self.held.submit(table)
        self.held.fold(self.now_us)
        self.held.merging.wait()  # so that the next step adopts what was merged, however busy the machine is

    def check(self, row: dict[str, Any]) -> None:
        """Compares what is shown of a subscription with what the oracle holds, and with what was said last."""
        sub_id, oracle = row["sub_id"], self.oracle
        said = self.said[sub_id]
        assert [row[name] for name in ("user", "payload", "expires")] == [
            said[name] for name in ("user", "payload", "expires")
        ]
        assert row["predicate"] == oracle.predicates.get(sub_id, "intersects")
        on = oracle.on.get(sub_id, "inside")
        assert row["on"] == (f"dwell({on!r})" if isinstance(on, float) else on)
        words = None if said["keywords"] is None else str(oracle.words[sub_id])
        assert row["keywords"] == words
        counting = oracle.counting.get(sub_id)
        assert row["aggregate"] == (None if counting is None else str(counting.spec.aggregate))
        assert row["when"] == (None if counting is None else counting.spec.when)
        if sub_id not in oracle.regions:
            assert (*(row[side] for side in SIDES), row["geometry"]) == (*oracle.live[sub_id][:4], None)
        elif oracle.regions[sub_id].metres is not None:
            shown = read_region(row["geometry"])
            assert shown == oracle.regions[sub_id]
        else:
            assert shapely.equals(shapely.from_wkb(row["geometry"]), oracle.regions[sub_id].shape)

    @property
    def live(self) -> list[int]:
        return sorted(i for i, held in self.oracle.live.items() if held[4] is None or held[4] > self.now_us)

    def region(self, sub_id: int) -> Region:
        return self.oracle.regions.get(sub_id) or Region(shapely.box(*self.oracle.live[sub_id][:4]))


def ids_of(table: pa.Table) -> list[int]:
    return list(table["sub_id"].to_pylist())


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_the_collection_is_the_oracles_at_every_version(tmp_path: Path, seed: int, plain: bool) -> None:
    world = World(tmp_path, seed, plain=plain)
    merged = 0
    for _ in range(6):
        before = {entry.name for entry in world.held.manifest.segments}
        world.step()
        merged += bool(before - {entry.name for entry in world.held.manifest.segments})
        whole = world.asked.page(limit=10_000)
        assert ids_of(whole) == world.live
        for row in whole.to_pylist():
            world.check(row)
        for limit in (17, 64):
            pages, after = [whole.slice(0, 0)], None
            while len(page := world.asked.page(limit=limit, after=after)):
                assert len(page) <= limit
                pages.append(page)
                after = ids_of(page)[-1]
            assert pa.concat_tables(pages).equals(whole)
        assert pa.concat_tables(world.asked.pieces(33)).equals(whole)
    assert merged
    assert len(world.live) > 50
    world.held.close()


@pytest.mark.parametrize("seed", range(2))
def test_regions_are_found_as_the_oracle_finds_them(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, 10 + seed)
    found = 0
    for _ in range(3):
        world.step()
        boxes = rectangles(world.rng, 6)
        given = pa.table({side: boxes[:, k] for k, side in enumerate(SIDES)} | {"geometry": pa.nulls(6, pa.binary())})
        drawn = [shape for shape in with_shapes(world.rng, given)["geometry"].to_pylist() if shape is not None]
        regions: list[Any] = [*map(tuple, boxes.tolist()), *drawn]
        for region in regions:
            asked = Region(shapely.box(*region)) if isinstance(region, tuple) else read_region(region)
            if asked is None:
                with pytest.raises(InputError, match="self-intersection"):
                    world.asked.page(region)
                continue
            for predicate in (None, "within", "contains", "covers"):
                kind = predicate or "intersects"
                want = [i for i in world.live if world.region(i).satisfies(kind, asked)]
                if predicate in ("contains", "covers"):  # of areas the same, and the engine has one answer for both
                    want = [i for i in world.live if world.region(i).satisfies("covers", asked)]
                page = world.asked.page(region, predicate=predicate, limit=10_000)
                assert ids_of(page) == want, (region, predicate)
                first = world.asked.page(region, predicate=predicate, limit=3)
                again = world.asked.page(region, predicate=predicate, limit=10_000, after=(ids_of(first) or [-1])[-1])
                assert ids_of(first) + ids_of(again) == want
                found += len(want)
    assert found > 200
    world.held.close()


def test_rectangles_are_found_by_the_index_of_cells(tmp_path: Path) -> None:
    world = World(tmp_path, 3, plain=True)
    for _ in range(3):
        world.step()
        view = View.open(world.held.storage, world.held.manifest)
        assert all(held.is_plain and held.index is not None for held in view.segments.values())
        for box in map(tuple, rectangles(world.rng, 12).tolist()):
            for predicate in ("intersects", "within", "contains"):
                want = [i for i in world.live if world.region(i).satisfies(predicate, Region(shapely.box(*box)))]
                assert ids_of(world.asked.page(box, predicate=predicate, limit=10_000)) == want
    world.held.close()


def test_conditions_users_and_ids_choose_together(tmp_path: Path) -> None:
    world, found = World(tmp_path, 4), dict.fromkeys(CONDITIONS, 0)
    for _ in range(3):
        world.step()
        whole = world.asked.page(limit=10_000)
        for where in CONDITIONS:
            want = chosen_rows(read_where(where), whole)
            assert world.asked.page(where=where, limit=10_000).equals(want)
            found[where] += len(want)
            page = world.asked.page(where=where, limit=5, after=100)
            assert page.equals(want.filter(pc.greater(want["sub_id"], 100)).slice(0, 5))
        mine = whole.filter(pc.equal(whole["user"], "anastasia"))
        assert len(mine) > 5
        assert world.asked.page(user="anastasia", limit=10_000).equals(mine)
        assert len(world.asked.page(user="nobody")) == 0
        some = world.rng.integers(-50, 450, 40).tolist()
        want = whole.filter(pc.is_in(whole["sub_id"], pa.array(some)))
        assert world.asked.page(sub_ids=some).equals(want)
        here = (-90.0, -45.0, 90.0, 45.0)
        both = set(ids_of(world.asked.page(here, limit=10_000))) & set(ids_of(mine)) & set(some)
        assert ids_of(world.asked.page(here, user="anastasia", sub_ids=some)) == sorted(both)
        for sub_id in some:
            shown = world.asked.get(sub_id)
            assert (shown is not None) == (sub_id in world.live)
            assert shown is None or [shown] == world.asked.page(sub_ids=[sub_id]).to_pylist()
    assert all(found.values()), found
    world.held.close()


def test_a_page_of_a_large_segment_reads_a_few_of_its_ids(tmp_path: Path) -> None:
    """More than the windows of one look, over several segments, with holes."""
    with gs.LocalEngine(CONTRACT, Tuning(deltas_max=8), checkpoint=str(tmp_path)) as engine:
        ids = np.random.default_rng(5).permutation(12_000)
        for part in np.array_split(ids, 5):
            rows = {"op": pa.array(["register"] * len(part)), "sub_id": pa.array(part)}
            sides = {
                side: pa.array(np.full(len(part), value)) for side, value in zip(SIDES, (0.0, 0, 1, 1), strict=True)
            }
            engine.submit(pa.Table.from_batches([operation_batch(rows | sides)]))
        engine.cancel(*range(2_000, 5_000))
        want = [*range(2_000), *range(5_000, 12_000)]
        for limit in (999, 5_000, 100_000):
            got, after = list[int](), None
            while page := ids_of(engine.subscriptions(after=after, limit=limit)):
                got += page
                after = page[-1]
            assert got == want
        assert ids_of(engine.subscriptions(where="sub_id >= 11998")) == [11998, 11999]


def test_what_is_expired_is_gone_though_no_version_was_made(tmp_path: Path) -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    clock = [now.timestamp()]
    with gs.LocalEngine(CONTRACT, checkpoint=str(tmp_path), clock=lambda: clock[0]) as engine:
        engine.subscribe(1, (0, 0, 1, 1), expires=now + timedelta(seconds=5))
        engine.subscribe(2, (0, 0, 1, 1))
        assert ids_of(engine.subscriptions()) == [1, 2]
        clock[0] += 6
        assert ids_of(engine.subscriptions()) == [2]
        assert engine.subscription(1) is None


def test_another_process_follows_new_versions_and_old_segments_that_are_gone(tmp_path: Path) -> None:
    world = World(tmp_path, 6)
    seen = set[str]()
    for _ in range(10):
        world.step(60)
        assert ids_of(world.asked.page(limit=10_000)) == world.live
        seen |= {entry.name for entry in world.held.manifest.segments}
    left = {name.rpartition(".")[0] for name in Storage(str(tmp_path)).names("subscriptions")}
    assert seen - left, "merged segments are removed"
    world.held.close()


def test_copies_of_what_no_version_names_any_more_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, given_up = World(tmp_path, 8), set[str]()
    monkeypatch.setattr(Storage, "forget", lambda self, name: given_up.add(name))
    seen = set[str | None]()
    for _ in range(6):
        world.step(60)
        world.asked.page(limit=1)
        seen |= {world.held.manifest.tombstones} | {f"{entry.name}.index" for entry in world.held.manifest.segments}
    now = world.held.manifest
    gone = seen - {None, now.tombstones} - {f"{entry.name}.index" for entry in now.segments}
    assert any(name.endswith(".dead") for name in gone if name)
    assert {f"subscriptions/{name}" for name in gone} <= given_up
    assert f"subscriptions/{now.tombstones}" not in given_up
    world.held.close()


def test_an_id_is_given_to_who_names_none(tmp_path: Path) -> None:
    with gs.LocalEngine(CONTRACT, checkpoint=str(tmp_path)) as engine:
        assert engine.subscribe(8, (0, 0, 1, 1)) == 8
        given = [engine.subscribe(None, (0, 0, 1, 1), user="ana"), engine.subscribe(rectangle=(0, 0, 1, 1))]
        assert all(0 < each < 1 << 63 for each in given)
        assert ids_of(engine.subscriptions()) == sorted([8, *given])
        drawn = iter([0, 8, given[0], 77])
        assert fresh_id(engine._checkpoint.view, 0, lambda bits: next(drawn)) == 77, "0 and live ids are passed over"


def test_a_payload_comes_back_as_it_was_given(tmp_path: Path) -> None:
    with gs.LocalEngine(CONTRACT, checkpoint=str(tmp_path)) as engine:
        engine.subscribe(1, (0, 0, 1, 1), payload={"route": 7, "name": "東京"})
        engine.subscribe(2, (0, 0, 1, 1), payload='{ "b":1, "a": 1e400 }')
        engine.subscribe(3, (0, 0, 1, 1), payload=[1, None, True, 2.5])
        engine.subscribe(4, (0, 0, 1, 1), payload='"a text"')
        engine.subscribe(5, (0, 0, 1, 1), payload=0)
        engine.subscribe(6, (0, 0, 1, 1))
        assert engine.subscriptions()["payload"].to_pylist() == [
            '{"route":7,"name":"東京"}',
            '{ "b":1, "a": 1e400 }',
            "[1,null,true,2.5]",
            '"a text"',
            "0",
            None,
        ]
        loop: list[Any] = []
        loop.append(loop)
        for bad, message in (
            ("route 7", "is no JSON: Expecting value at character 1; a text is written in double quotes"),
            ('{"a": 1,}', "character"),
            ("", "Expecting value at character 1"),
            ("NaN", "NaN is no number of JSON"),
            ("[" * 5_000, "deep"),
            ("7" * 10_001, "more than 10000 bytes"),
            (float("nan"), "payload: Out of range"),
            ({"stops": [1, {2}]}, r"payload\['stops'\]\[1\]: Object of type set"),
            (loop, "Circular"),
            (["\ud800"], r"payload\[0\]"),
            (b"{}", "bytes"),
        ):
            with pytest.raises(InputError, match=message):
                engine.subscribe(9, (0, 0, 1, 1), payload=bad)
        assert engine.subscription(9) is None


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"where": "usr = 'ana'"}, "at character 1 of the condition: there is no 'usr': did you mean 'user'"),
        ({"where": "user >"}, "at character 7 of the condition"),
        ({"where": "xmin > 'a'"}, "xmin has numbers, and 'a' is none"),
        ({"limit": 0}, "limit 0: ask for 1 to 1000000 subscriptions"),
        ({"limit": -5}, "limit -5: ask for 1 to 1000000"),
        ({"limit": 10**7}, "limit 10000000: ask for 1 to 1000000"),
        ({"region": (2, 1, 1, 2)}, "rectangle of the query has xmin 2.0 > xmax 1.0: swap them"),
        ({"region": (1, 1, 1, 2)}, "widen it"),
        ({"region": (170, 0, 190, 10)}, "outside the world: clip it"),
        ({"region": (1, 2, 3)}, "has not four sides"),
        ({"region": "POINT(1 1)"}, "which has no area"),
        ({"region": "POLYGON((0 0"}, "the query"),
        ({"predicate": "near", "region": (0, 0, 1, 1)}, "predicate 'near' is unknown: with a region, ask for one of"),
        ({"predicate": "within"}, "predicate 'within' needs a region"),
        ({"after": "7"}, "after is '7', which is no whole number"),
        ({"after": 1 << 63}, "after 9223372036854775808 is no id: ids are integers of 64 bits"),
        ({"sub_ids": ["a"]}, "sub_ids is 'a', which is no whole number"),
        ({"sub_ids": 7}, "sub_ids is 7: give a list of ids"),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(tmp_path: Path, asked: dict[str, Any], message: str) -> None:
    with gs.LocalEngine(CONTRACT, checkpoint=str(tmp_path)) as engine:
        with pytest.raises(InputError) as why:
            engine.subscriptions(**asked)
        assert message in str(why.value)


def test_ids_may_be_negative_and_so_may_after(tmp_path: Path) -> None:
    with gs.LocalEngine(CONTRACT, checkpoint=str(tmp_path)) as engine:
        for sub_id in (-(1 << 63), -7, 0, (1 << 63) - 1):
            engine.subscribe(sub_id, (0, 0, 1, 1))
        assert ids_of(engine.subscriptions(after=-8)) == [-7, 0, (1 << 63) - 1]
        assert ids_of(engine.subscriptions(after=(1 << 63) - 1)) == []


def test_a_folder_that_is_no_checkpoint_and_a_damaged_segment_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no checkpoint of an engine"):
        gs.Subscriptions(str(tmp_path / "none"))
    folder = tmp_path / "state"
    with gs.LocalEngine(CONTRACT, checkpoint=str(folder)) as engine:
        engine.subscribe(1, (0, 0, 1, 1))
        (entry,) = newest(engine._checkpoint.storage).segments
    file = folder / "subscriptions" / f"{entry.name}.records"
    raw = bytearray(file.read_bytes())
    raw[100] ^= 1
    file.write_bytes(raw)
    with pytest.raises(CorruptState, match=rf"{entry.name}.records: .* restore it from a backup"):
        gs.Subscriptions(str(folder)).page()
    file.unlink()
    with pytest.raises(CorruptState, match=f"{entry.name}.records is missing"):
        gs.Subscriptions(str(folder)).page()


def test_an_empty_checkpoint_has_no_subscriptions(tmp_path: Path) -> None:
    with gs.LocalEngine(CONTRACT, checkpoint=str(tmp_path)) as engine:
        assert len(engine.subscriptions()) == 0
        assert engine.subscriptions().schema.names[:2] == ["sub_id", "user"]
        assert list(gs.Subscriptions(str(tmp_path)).pieces()) == []
