"""Ids of subscriptions that are texts: every output has them as given, and everything else is as with integers."""

import json
import uuid
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import geoswarm as gs
import worlds
from geoswarm.config import AggregateSettings, Contract, Tuning, WindowSettings
from geoswarm.core.subscriptions import id_texts
from geoswarm.core.subscriptions.attributes import operation_table, registration
from geoswarm.errors import GeoswarmError, InputError, SchemaError, SettingsError
from geoswarm.flow.merge import match_schema
from geoswarm.flow.stages.show_ids import shown_field, with_texts
from geoswarm.model import EVENT, SUB_IDS
from geoswarm.run.collection import Subscriptions
from geoswarm.run.oracle.oracle import Oracle
from geoswarm.run.oracle.outputs import alerts_of, pairs_of
from geoswarm.service.cli.commands import app
from geoswarm.service.subscriptions import export
from worlds import BOUNDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLD = Contract(columns=60, rows=30, executors=3, subscription_ids="text")
BOX = (0.0, 0.0, 2.0, 2.0)
STEP, BATCHES, BATCH_US = 5.0, 5, 10_000_000


@cache
def text_of(number: int) -> str:
    """Words, UUIDs, digits and letters of other scripts, in no order of the numbers."""
    of_name = str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))
    return (f"fence {number}", of_name, str(number), f"Zaun é日\U0001f600 {number}")[number % 4]


NUMBERS = {text_of(number): number for number in range(100)}


def with_texts_as_ids(operations: pa.Table) -> pa.Table:
    texts = pa.array([text_of(number) for number in operations["sub_id"].to_pylist()])
    return operations.set_column(operations.schema.get_field_index("sub_id"), "sub_id", texts)


def storm(seed: int, number: int) -> pa.Table:
    rng = np.random.default_rng((seed, 1000 + number))
    asked = worlds.operations(rng, 40 if number else 60, ids=40, now_us=0, near=20.0, lasts_us=10**7)
    return worlds.with_alert_rules(rng, worlds.with_on(rng, worlds.with_borders(asked, STEP)))


def walks(seed: int, number: int) -> pa.Table:
    rng = np.random.default_rng((seed, number))
    return worlds.border_walks(rng, 250, step=STEP, objects=10, first_id=1000 * number, at_us=number * BATCH_US)


def one_event(count: int = 1) -> pa.Table:
    """Events in the box."""
    places = pa.array([1.0] * count)
    times = pa.array(range(count), pa.timestamp("s", "UTC"))
    return pa.table({"event_id": np.arange(count), "ts": times, "x": places, "y": places})


# -- what goes out


@pytest.mark.parametrize("matches", ["arrays", "pairs", "alerts"])
@pytest.mark.parametrize("seed", range(2))
def test_matches_are_those_of_brute_force_with_the_ids_that_were_given(tmp_path: Path, seed: int, matches: str) -> None:
    """Each batch by an engine of its own, which merges segments all the time."""
    oracle, passed, ttl_s = Oracle(BOUNDS), 0, 10**6
    oracle.following.sequence_us = ttl_s * 1_000_000
    tuning = Tuning(matches=matches, round_s=0.001, object_ttl_s=ttl_s, deltas_max=2, dead_share_max=0.2)  # type: ignore[arg-type]
    for number in range(BATCHES):
        sink = gs.sinks.Memory()
        with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path), clock=partial(float, number)) as engine:
            engine.start(
                events=[walks(seed, n) for n in range(number + 1)],
                operations=[with_texts_as_ids(storm(seed, n)) for n in range(number + 1)],
                sink=sink,
                available_now=True,
            ).wait()
        oracle.operate(storm(seed, number), number * 1_000_000)
        (table,) = sink.batches.values()
        if matches == "alerts":
            want = oracle.alerts(oracle.tell(walks(seed, number), number * 1_000_000))
            numbered = pa.array([NUMBERS[text] for text in table["sub_id"].to_pylist()], pa.int64())
            got = alerts_of([table.set_column(table.schema.get_field_index("sub_id"), "sub_id", numbered)])
            assert sorted(got, key=str) == sorted(want, key=str)
        else:
            pairs = pairs_of([table])
            want_pairs = oracle.deliver(walks(seed, number), number * 1_000_000)
            assert len(pairs) == len(set(pairs))
            assert {(event, NUMBERS[str(text)]) for event, text in pairs} == want_pairs
        kinds = {field.name: str(field.type) for field in table.schema}
        assert kinds.get("sub_id", kinds.get("sub_ids")) in ("string", "list<element: string>")
        passed += len(table)
    assert passed > 100


def test_a_batch_that_is_run_again_gives_the_same_ids(tmp_path: Path) -> None:
    """Its sink fails after it has the rows; meanwhile one of the subscriptions is cancelled, and another comes."""
    seen: list[pa.Table] = []

    def sink(rows: pa.Table, number: int) -> None:
        seen.append(rows)
        if len(seen) == 1:
            raise OSError("full")

    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        for name in ("a", "b", "c"):
            engine.subscribe(name, BOX)
        run = engine.start(events=one_event(3), sink=sink, available_now=True)
        with pytest.raises(OSError, match="full"):
            run.wait()
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.cancel("a")
        engine.subscribe("d", BOX)
        engine.start(events=[one_event(3), one_event(1)], sink=sink, available_now=True).wait()
    shown = [sorted(row["sub_ids"]) for row in seen[1].to_pylist()]
    assert shown == [["a", "b", "c"]] * 3
    assert [sorted(row["sub_ids"]) for row in seen[0].to_pylist()] == shown
    assert [sorted(row["sub_ids"]) for row in seen[2].to_pylist()] == [["b", "c", "d"]]


class _Named:
    """The subscriptions of a batch, whose ids are long."""

    def id_texts(self, ids: Any) -> pa.LargeStringArray:
        return pa.array([f"{number:0100d}" for number in ids.tolist()], pa.large_string())


def test_rows_with_many_long_ids_go_out_in_parts() -> None:
    events = worlds.events(np.random.default_rng(0), 50)
    lists = pa.array([list(range(n % 7)) for n in range(50)], SUB_IDS.type)
    rows = pa.record_batch([*events.columns, lists], schema=match_schema(EVENT, "arrays")).slice(3)
    shown = rows.schema.set(4, shown_field(SUB_IDS))
    parts = list(with_texts(rows, 4, shown, _Named(), bytes_max=1000))  # type: ignore[arg-type]
    assert len(parts) > 10
    found = [list(map(int, ids)) for part in parts for ids in part.column("sub_ids").to_pylist()]
    assert found == rows.column("sub_ids").to_pylist()
    assert [i for part in parts for i in part.column("event_id").to_pylist()] == rows.column("event_id").to_pylist()


def test_answers_digests_and_the_past_have_the_ids(tmp_path: Path) -> None:
    answers, late, matches = gs.sinks.Memory(), gs.sinks.Memory(), gs.sinks.Memory()
    tuning = Tuning(aggregates=AggregateSettings(lateness_s=1.0), window=WindowSettings(keep="1 hour", marks_past=True))
    delivery = gs.Stage(gs.operators.Delivery(1), late, on="matches", tuning=gs.KeyTuning(interval_s=2))
    with gs.LocalEngine(WORLD, tuning, checkpoint=str(tmp_path), clock=iter(range(1000)).__next__) as engine:
        engine.subscribe("counts", BOX, aggregate="count", window="tumbling(1 s)")
        engine.subscribe("fence", BOX, user="ana")
        run = engine.start(
            events=(source := gs.local.from_tables(one_event(5))), sink=matches, aggregates=answers, stages=[delivery]
        )
        run.drain()
        engine.subscribe("past", BOX, since="1970-01-01")
        later = one_event(5).set_column(1, "ts", pa.array(range(100, 105), pa.timestamp("s", "UTC")))
        for _ in range(3):
            source.append(later)
            run.drain()
        run.stop()
    assert set(answers.table()["sub_id"].to_pylist()) == {"counts"}
    past = matches.table().filter(matches.table()["past"])
    assert past["sub_ids"].to_pylist() == [["past"]] * 5
    rows = late.table().to_pylist()
    assert {row["sub_id"] for row in rows if row["kind"] == "now"} == {"fence", "past"}
    assert {match["sub_id"] for row in rows for match in row["matches"] or ()} == {"fence", "past"}


# -- two texts with one number


@pytest.mark.parametrize("seed", range(3))
def test_texts_with_one_number_never_share_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """All numbers are one of seven. The rule by brute force: whoever is live has the number, or who comes first."""
    monkeypatch.setattr(id_texts, "number_of", lambda text: sum(text) % 7)
    oracle, refused, passed = Oracle(BOUNDS), 0, 0
    for number in range(8):
        rng, now_us = np.random.default_rng((seed, number)), number * 1_000_000
        asked = worlds.operations(rng, 12, ids=30, now_us=now_us, near=20.0, lasts_us=5_000_000)
        owners = {
            sum(text_of(i).encode()) % 7: i for i, sub in oracle.live.items() if sub[4] is None or sub[4] > now_us
        }
        fit, strange = [], []
        for row in asked.to_pylist():
            of = sum(text_of(row["sub_id"]).encode()) % 7
            sides_fit = row["xmin"] < row["xmax"] and row["ymin"] < row["ymax"]
            expires = row["expires"] is not None and row["expires"].timestamp() * 1e6 <= now_us
            sound = row["op"] == "cancel" or (row["op"] in ("register", "replace") and sides_fit and not expires)
            fit.append(not sound or owners.setdefault(of, row["sub_id"]) == row["sub_id"])
            if not fit[-1]:
                strange.append("unknown-id" if row["op"] == "cancel" else "id-taken")
        events, sink = worlds.wandering_events(rng, 100, near=20.0, objects=3), gs.sinks.Memory()
        with gs.LocalEngine(WORLD, checkpoint=str(tmp_path), clock=lambda n=now_us: n / 1e6) as engine:  # type: ignore[misc]
            before = len(engine.dead_letters())
            engine.start(
                events=[events] * (number + 1),
                operations=[with_texts_as_ids(asked)] * (number + 1),
                sink=sink,
                available_now=True,
            ).wait()
            letters = engine.dead_letters().slice(before).to_pylist()
        oracle.operate(asked.filter(pa.array(fit)), now_us)
        want = oracle.match(events, now_us)
        assert {(e, NUMBERS[str(s)]) for e, s in pairs_of([sink.batches[number]])} == want
        taken = [letter for letter in letters if letter["reason"] == "id-taken"]
        assert len(taken) == strange.count("id-taken")
        assert all(json.loads(letter["row"])["sub_id"] in NUMBERS for letter in taken)
        refused, passed = refused + len(strange), passed + len(want)
    assert refused > 20
    assert passed > 20


def test_who_asks_for_a_text_never_gets_another_with_its_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_texts, "number_of", lambda text: 7)
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.subscribe("a", BOX)
        engine.cancel("b")
        engine.subscribe("b", BOX)
        engine.subscribe("b", BOX, replace=True)
        assert engine.subscription("b") is None
        assert engine.subscription("a") is not None
        assert engine.subscriptions(sub_ids=["b", "a"])["sub_id"].to_pylist() == ["a"]
        assert engine.dead_letters()["reason"].to_pylist() == ["unknown-id", "id-taken", "id-taken"]
        engine.cancel("a")
        engine.subscribe("b", BOX)
        assert engine.subscriptions()["sub_id"].to_pylist() == ["b"]


def test_the_number_of_a_text_never_changes() -> None:
    """Checkpoints have them."""
    assert id_texts.numbers_of(["fence 7", "", "é"]).tolist() == [
        3558088865324361361,
        3797230976420062948,
        3394012004367669963,
    ]


# -- the collection


def test_subscriptions_are_asked_for_listed_and_exported_by_their_texts(tmp_path: Path) -> None:
    folder, given = str(tmp_path / "one"), uuid.uuid4()
    with gs.LocalEngine(WORLD, checkpoint=folder) as engine:
        assert engine.subscribe(given, BOX, user="ana") == given
        made = engine.subscribe(None, BOX)
        for name in ("fence 7", 12):
            engine.subscribe(name, BOX)
        names = {str(given), made, "fence 7", "12"}
        assert uuid.UUID(made).version == 4
        assert engine.subscription(given) == engine.subscription(str(given))
        assert engine.subscription(12)["sub_id"] == "12"  # type: ignore[index]
        assert engine.subscription("no") is None
        assert engine.subscriptions(where="sub_id = 'fence 7' OR user = 'ana'")["sub_id"].to_pylist()
        pages, after = list[str](), None
        while rows := engine.subscriptions(after=after, limit=1)["sub_id"].to_pylist():
            after = rows[0]
            pages += rows
        assert sorted(pages) == sorted(names)
        engine.cancel("12", given)
        engine.subscribe("fence 7", BOX, replace=True, user="ben")
        assert sorted(engine.subscriptions()["sub_id"].to_pylist()) == sorted({made, "fence 7"})
    shown = CliRunner().invoke(app, ["subscriptions", folder, "--id", "fence 7", "--format", "json"])
    assert [row["user"] for row in json.loads(shown.stdout)] == ["ben"]
    for kind in (".parquet", ".geojson"):
        file = tmp_path / f"all{kind}"
        assert export(Subscriptions(folder), file) == 2
        with gs.LocalEngine(WORLD, checkpoint=str(tmp_path / kind)) as engine:
            assert engine.load(str(file)).registered == 2
            assert sorted(engine.subscriptions()["sub_id"].to_pylist()) == sorted({made, "fence 7"})
            assert engine.subscription("fence 7")["user"] == "ben"  # type: ignore[index]


def test_an_integer_of_any_length_is_the_text_of_its_digits(tmp_path: Path) -> None:
    with gs.LocalEngine(gs.Contract(columns=60, rows=30, subscription_ids="text"), checkpoint=str(tmp_path)) as engine:
        assert engine.subscribe(2**70, (0.0, 0.0, 1.0, 1.0)) == 2**70
        assert engine.subscriptions()["sub_id"].to_pylist() == [str(2**70)]
        engine.cancel(2**70)
        assert len(engine.subscriptions()) == 0
        for ask in (engine.cancel, engine.subscription, lambda sub: engine.subscribe(sub, (0.0, 0.0, 1.0, 1.0))):
            with pytest.raises(InputError, match="more than 1000 digits"):
                ask(10**5000)


def test_ids_of_files_of_regions_are_words_uuids_or_integers(tmp_path: Path) -> None:
    square = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 0]]]}
    features = [{"type": "Feature", "id": i, "properties": {}, "geometry": square} for i in ("park", 7, None)]
    (tmp_path / "a.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    given = uuid.uuid4()
    columns = {"id": pa.array([given.bytes], pa.uuid()), "geometry": pa.array(["POLYGON((0 0,1 0,1 1,0 0))"])}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path / "state")) as engine:
        assert engine.load(str(tmp_path / "a.geojson")).dead == 1  # the one without an id among words
        assert engine.load(str(tmp_path / "b.parquet")).dead == 0
        assert sorted(engine.subscriptions()["sub_id"].to_pylist()) == sorted(["park", "7", str(given)])


def test_guard_removes_them_and_they_expire(tmp_path: Path) -> None:
    now = [0.0]
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path), guard=gs.GuardSettings(), clock=lambda: now[0]) as engine:
        rows = [registration(f"of {user} {i}", BOX, user=user) for user in ("ana", "ben") for i in range(3)]
        engine.submit(operation_table(rows))
        engine.cancel("of ben 0", user="ana")
        assert engine.dead_letters()["detail"].to_pylist() == [
            "subscription of ben 0 is not ana's: only who has it may change it"
        ]
        engine.block("ana", remove="all")
        assert sorted(engine.subscriptions()["sub_id"].to_pylist()) == [f"of ben {i}" for i in range(3)]
        engine.submit(operation_table([registration("short", BOX, user="ben", expires=gs_time(5))]))
        now[0] = 6.0
        assert engine.subscription("short") is None
        engine.subscribe("short", BOX, user="ben")
        assert engine.subscription("short") is not None


def gs_time(seconds: int) -> Any:
    return pa.scalar(seconds, pa.timestamp("s", "UTC")).as_py()


def test_status_names_who_asks_for_what_the_stream_lacks_by_its_text(tmp_path: Path) -> None:
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path)) as engine:
        engine.subscribe("flood", BOX, keywords="flood")
        engine.start(events=one_event(), sink=gs.sinks.Noop(), available_now=True).wait()
        (lacking,) = engine.status()["lacking"]
    assert lacking["sub_id"] == "flood"
    assert "flood the first" in lacking["what"]


# -- where they come from


@pytest.mark.parametrize("kind", ["json", "csv", "parquet", "uuid", "integers"])
def test_operations_come_from_files_with_texts(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    given: list[Any] = ["fence 7", str(uuid.uuid4())]
    rows = [registration(name, BOX) for name in given]
    table = pa.table({name: [row[name] for row in rows] for name in ("op", "sub_id", "xmin", "ymin", "xmax", "ymax")})
    if kind == "json":
        rows.append(registration(12, BOX))
        given.append("12")
        (folder / "0.json").write_text("\n".join(map(json.dumps, rows)))
    elif kind == "csv":
        pacsv.write_csv(table, folder / "0.csv")
    else:
        ids = table["sub_id"].combine_chunks()
        if kind == "uuid":
            given = [str(uuid.UUID(int=7)), str(uuid.UUID(int=8))]
            ids = pa.array([uuid.UUID(text).bytes for text in given], pa.uuid())
        elif kind == "integers":
            given, ids = ["-7", "8"], pa.array([-7, 8])
        pq.write_table(table.set_column(1, "sub_id", ids), folder / "0.parquet")
    said = "text" if kind in ("json", "csv") else None
    source, sink = gs.local.operations_from_files(str(folder), sub_id=said), gs.sinks.Memory()
    with gs.LocalEngine(WORLD, checkpoint=str(tmp_path / "state")) as engine:
        engine.start(events=one_event(), operations=source, sink=sink, available_now=True).wait()
        assert not len(engine.dead_letters())
    (row,) = sink.table().to_pylist()
    assert sorted(row["sub_ids"]) == sorted(given)


def test_operations_come_from_files_on_spark_with_texts(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [registration("fence 7", BOX), registration(12, BOX)]
    (tmp_path / "in/0.json").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(one_event(3), tmp_path / "0.parquet")
    (tmp_path / "events").mkdir()
    (tmp_path / "0.parquet").rename(tmp_path / "events/0.parquet")
    source = gs.sources.operations_from_files(spark, str(tmp_path / "in"), sub_id="text")
    for whole in (True, False):  # read by tasks, and by Spark
        found: list[pa.Table] = []
        with gs.Engine(spark, WORLD, Tuning(driver_bytes_max=0), checkpoint=str(tmp_path / f"state {whole}")) as engine:
            engine.start(
                events=gs.sources.events_from_files(spark, str(tmp_path / "events")),
                operations=source if whole else source.select("*"),
                sink=lambda rows, _, found=found: found.append(rows.toArrow()),  # type: ignore[misc]
                available_now=True,
            ).wait()
            assert not len(engine.dead_letters())
        shown = pa.concat_tables(found)["sub_ids"].to_pylist()
        assert [sorted(ids) for ids in shown] == [["12", "fence 7"]] * 3


# -- what is refused (docs/running.md has the same table)


def start(folder: Path, operations: Any, contract: Contract = WORLD) -> pa.Table:
    with gs.LocalEngine(contract, checkpoint=str(folder)) as engine:
        engine.start(events=one_event(), operations=operations, sink=gs.sinks.Noop(), available_now=True).wait()
        return engine.dead_letters()


@pytest.mark.parametrize(
    ("sub_id", "reason", "detail"),
    [
        (None, "null", "sub_id is null"),
        ("", "id", "the id of a subscription is an empty text"),
        ("é" * 501, "id", "has more than 1000 bytes"),
        (b"\xff", "id", "is no UTF-8"),
    ],
)
def test_a_text_that_is_no_id_is_a_dead_letter(tmp_path: Path, sub_id: Any, reason: str, detail: str) -> None:
    column = pa.array([sub_id, "good"], pa.binary()).cast(pa.string(), safe=False)
    sides = {side: [value] * 2 for side, value in zip(("xmin", "ymin", "xmax", "ymax"), BOX, strict=True)}
    (letter,) = start(tmp_path, pa.table({"op": ["register"] * 2, "sub_id": column, **sides})).to_pylist()
    assert letter["reason"] == reason
    assert detail in letter["detail"]


def test_what_is_refused_is_shown_with_its_text(tmp_path: Path) -> None:
    rows = [registration("a", BOX)] * 2 + [registration("b", (2, 0, 1, 1)), {"op": "cancel", "sub_id": "no"}]
    letters = start(tmp_path, operation_table(rows)).to_pylist()
    assert {(letter["reason"], json.loads(letter["row"])["sub_id"]) for letter in letters} == {
        ("duplicate", "a"), ("inverted", "b"), ("unknown-id", "no"),
    }  # fmt: skip
    assert "subscription a exists: send replace" in {letter["detail"] for letter in letters}


def _json(folder: Path, **said: Any) -> Any:
    folder.mkdir()
    (folder / "0.json").write_text(json.dumps(registration("a", BOX)))
    return gs.local.operations_from_files(str(folder), **said)


INTEGERS = Contract(columns=60, rows=30, executors=3)
REFUSED: dict[str, tuple[Any, type[GeoswarmError], str]] = {
    "texts for integers": (
        lambda folder: start(folder, operation_table([registration("a", BOX)]), INTEGERS),
        SchemaError, "column sub_id of operations is string, and ids are integers in this checkpoint",
    ),
    "subscribe with a text for integers": (
        lambda folder: gs.LocalEngine(INTEGERS, checkpoint=str(folder)).subscribe("a", BOX),
        SchemaError, "ids are integers in this checkpoint",
    ),
    "a type that is no id": (
        lambda folder: start(folder, pa.table({"op": ["cancel"], "sub_id": [1.5]})),
        SchemaError, "column sub_id of operations is double, wanted is a string, a UUID or an integer",
    ),
    "a Boolean as an id": (
        lambda folder: gs.LocalEngine(WORLD, checkpoint=str(folder)).subscribe(True, BOX),
        InputError, "a value of the wrong type",
    ),
    "JSON that is not said to have texts": (
        lambda folder: start(folder, _json(folder.with_name("in"))),
        SchemaError, 'say sub_id = "text" where they are read',
    ),
    "JSON that is said to have texts, for integers": (
        lambda folder: start(folder, _json(folder.with_name("in"), sub_id="text"), INTEGERS),
        SchemaError, 'leave sub_id = "text" out',
    ),
    "another kind of ids": (
        lambda folder: _json(folder.with_name("in"), sub_id="uuid"),
        SettingsError, "sub_id cannot be 'uuid'",
    ),
    "another contract": (
        lambda folder: [start(folder, None, contract) for contract in (INTEGERS, WORLD)],
        SettingsError, "subscription_ids integer there, text here",
    ),
    "a question with what is no id": (
        lambda folder: gs.LocalEngine(WORLD, checkpoint=str(folder)).subscription(1.5),  # type: ignore[arg-type]
        InputError, "which is no id: give a text, a UUID or an integer",
    ),
    "half of a character": (
        lambda folder: gs.LocalEngine(WORLD, checkpoint=str(folder)).subscribe("\ud800", BOX),
        InputError, "a value of the wrong type",
    ),
    "a question with half of a character": (
        lambda folder: gs.LocalEngine(WORLD, checkpoint=str(folder)).subscription("\ud800"),
        InputError, "which is no id",
    ),
    "a question with one text for a list": (
        lambda folder: gs.LocalEngine(WORLD, checkpoint=str(folder)).subscriptions(sub_ids="abc"),
        InputError, "give a list of ids",
    ),
    "a question with a text for integers": (
        lambda folder: gs.LocalEngine(INTEGERS, checkpoint=str(folder)).subscription("a"),
        InputError, "which is no whole number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_ids_that_do_not_fit_the_checkpoint_are_refused(tmp_path: Path, case: str) -> None:
    act, error, message = REFUSED[case]
    with pytest.raises(error) as raised:
        act(tmp_path / "state")
    assert message in str(raised.value)


def test_a_text_on_the_command_line_of_integers_is_refused(tmp_path: Path) -> None:
    gs.LocalEngine(INTEGERS, checkpoint=str(tmp_path)).close()
    shown = CliRunner().invoke(app, ["subscriptions", str(tmp_path), "--id", "fence"])
    assert "--id fence is no integer" in shown.output
