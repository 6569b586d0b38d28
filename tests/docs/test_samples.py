"""The sample event, operation and match of docs/running.md, and its settings for a topic with names of its own."""

import json
import re
import tomllib
from pathlib import Path

import geoswarm as gs
from geoswarm.config import Contract, Tuning
from geoswarm.run.json_writing import json_rows

PAGE = (Path(__file__).parents[2] / "docs" / "running.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def run_through(
    folder: Path, event: str, operation: str, tuning: Tuning | None = None, **how: object
) -> list[dict[str, object]]:
    for name, line in (("events", event), ("operations", operation)):
        (folder / name).mkdir(parents=True)
        (folder / name / "0.jsonl").write_text(line + "\n")
    sink = gs.sinks.Memory()
    with gs.LocalEngine(Contract(executors=2), tuning, checkpoint=str(folder / "state")) as engine:
        came = gs.local.events_from_files(str(folder / "events"), **how)  # type: ignore[arg-type]
        asked = gs.local.operations_from_files(str(folder / "operations"))
        engine.start(events=came, operations=asked, sink=sink, available_now=True).wait()
        assert engine.dead_letters().num_rows == 0
    return [json.loads(text) for batch in sink.table().to_batches() for text in json_rows(batch).to_pylist()]


def test_the_sample_event_and_operation_give_the_sample_match(tmp_path: Path) -> None:
    event, operation, match = blocks("json")[0].splitlines()
    assert run_through(tmp_path, event, operation, extra="text string") == [json.loads(match)]


def test_the_sample_message_is_read_with_the_sample_settings(tmp_path: Path) -> None:
    _, operation, match = blocks("json")[0].splitlines()
    (settings,) = (text for text in blocks("toml") if "[events.columns]" in text)
    section = tomllib.loads(settings)["events"]
    message = {**json.loads(blocks("json")[1]), "note": "flood"}
    how = {"columns": section["columns"], "ts_unit": section["ts_unit"]}
    (found,) = run_through(tmp_path, json.dumps(message), operation, **how)
    assert found == {**json.loads(match), "object_id": "12"}


def test_the_sample_alert_is_what_comes_of_its_event(tmp_path: Path) -> None:
    (alert,) = (json.loads(text) for text in blocks("json") if '"transition"' in text)
    event = {name: alert[name] for name in ("event_id", "ts", "x", "y", "object_id")}
    asked = json.loads(blocks("json")[0].splitlines()[1])
    asked |= {"keywords": None, "on": "enter"} | {name: alert[name] for name in ("sub_id", "user", "payload")}
    (found,) = run_through(
        tmp_path, json.dumps(event), json.dumps(asked), Tuning(matches="alerts"), extra="object_id string"
    )
    assert found == alert
