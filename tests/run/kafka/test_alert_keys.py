"""Alerts in Kafka: of one key they are in order, whatever happens to plans and executors in between."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import geoswarm as gs
import worlds
from geoswarm.config import SubIdKind
from geoswarm.lab.crash.broker import Broker
from topics import messages_of

WORLD = gs.Contract(columns=90, rows=45, executors=4)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("key", "column", "ids"),
    [
        (None, "object_id", "integer"),
        ("object", "object_id", "text"),
        ("subscription", "sub_id", "integer"),
        ("subscription", "sub_id", "text"),
    ],
)
def test_alerts_of_a_key_are_in_order_through_rebalances(
    broker: Broker, tmp_path: Path, key: Literal["object", "subscription"] | None, column: str, ids: SubIdKind
) -> None:
    topic, world = f"alerts-{key}-{ids}", WORLD.model_copy(update={"subscription_ids": ids})
    broker.create_topic(topic, partitions=3)
    rng = np.random.default_rng(1)
    batches = [
        worlds.border_walks(rng, 400, step=5.0, objects=15, first_id=1000 * k, at_us=20_000_000 * k) for k in range(4)
    ]
    tuning, state = gs.Tuning(matches="alerts", round_s=0.001, strategy="swarm"), str(tmp_path / "state")
    for number in range(1, len(batches) + 1):
        with gs.LocalEngine(world, tuning, checkpoint=state) as engine:
            if number == 1:
                for sub in range(20):
                    corner = rng.integers(-4, 4, 2) * 5.0
                    sides = (*corner, *(corner + 5.0))
                    engine.subscribe(sub, sides, on=("enter", "exit", "inside")[sub % 3], user="ana", payload=[sub])
            engine.scale(2 + number)
            sink = gs.sinks.Kafka(broker.bootstrap, topic, key=key)
            engine.start(events=gs.local.from_tables(*batches[:number]), sink=sink, available_now=True).wait()
    found = messages_of(broker, topic, 3)
    seen, partitions = defaultdict[bytes, list[Any]](list), defaultdict[bytes, set[int]](set)
    for message in found:
        row = json.loads(message.value())
        assert message.key() == str(row.get(column, row["event_id"])).encode()
        assert row["payload"] == f"[{row['sub_id']}]"
        assert isinstance(row["sub_id"], str) == (ids == "text")
        if column in row:
            seen[message.key()].append(row)
            partitions[message.key()].add(message.partition())
    assert all(len(where) == 1 for where in partitions.values())
    sequences = defaultdict[tuple[Any, Any], list[int]](list)
    for rows in seen.values():
        for batch in range(len(batches)):
            order = [(row["ts"], row["event_id"]) for row in rows if row["event_id"] // 1000 == batch]
            assert order == sorted(order)
        assert [row["event_id"] // 1000 for row in rows] == sorted(row["event_id"] // 1000 for row in rows)
        for row in rows:
            if "sequence" in row:
                sequences[row["sub_id"], row["object_id"]].append(row["sequence"])
    assert max(map(len, sequences.values())) > 3
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in sequences.values())
