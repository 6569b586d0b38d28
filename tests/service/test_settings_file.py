"""A settings file is read whole, or every one of its errors is named with its line and a remedy."""

import shutil
from pathlib import Path

import pytest

from geoswarm.config import Contract, KeyBalancing, Tuning
from geoswarm.control.registry import strategies
from geoswarm.errors import SettingsError
from geoswarm.run.stream_log import StreamLog
from geoswarm.service.cli.settings_file import PipelineSettings, read_settings
from geoswarm.service.cli.settings_sections import ClassSetting, FilesEvents, FilesSource, GeneratedEvents
from geoswarm.service.cli.toml_lines import find_line, key_lines
from geoswarm.service.launch_local import build_sources

GOOD = """\
[checkpoint]
path = "state"

[events]
kind = "tweets"

[sink]
kind = "console"
"""


def read(folder: Path, text: str) -> PipelineSettings:
    file = folder / "pipeline.toml"
    file.write_text(text)
    return read_settings(file)


def complaints(folder: Path, text: str) -> list[str]:
    with pytest.raises(SettingsError) as raised:
        read(folder, text)
    return [line.replace(f"{folder}/", "") for line in str(raised.value).splitlines()]


def test_three_sections_are_enough_and_the_rest_has_defaults(tmp_path: Path) -> None:
    settings = read(tmp_path, GOOD)
    assert settings.contract == Contract()
    assert settings.tuning == Tuning()
    assert isinstance(settings.events, GeneratedEvents)
    assert settings.events.kind == "tweets"
    assert settings.operations is None
    assert settings.trigger.every_s == 0
    assert not settings.needs_kafka


def test_posts_with_words_are_a_source_with_options_of_their_own(tmp_path: Path) -> None:
    text = GOOD.replace('"tweets"', '"posts"\ncountry = "DE"\nwords = 500\nrows_total = 9')
    settings = read(tmp_path, text)
    assert isinstance(settings.events, GeneratedEvents)
    assert settings.events.workload == ClassSetting("posts", {"country": "DE", "words": 500})
    assert settings.events.pace.rows_total == 9
    (complaint,) = complaints(tmp_path, text.replace("words = 500", "words = 5"))
    assert complaint == "pipeline.toml, line 7: [events] words of the posts is 5: give a value from 100 to 621435"


def test_digests_and_trends_have_sections_of_their_own(tmp_path: Path) -> None:
    text = """
[checkpoint]
path = "state"
[events]
kind = "tweets"
[sink]
kind = "console"
[delivery]
per_interval = 5
sink = { kind = "parquet", path = "out" }
[trending]
region_deg = 2.0
sink = { kind = "kafka", bootstrap = "b", topic = "t" }
"""
    file = tmp_path / "pipeline.toml"
    file.write_text(text)
    settings = read_settings(file)
    assert settings.delivery is not None
    assert settings.trending is not None
    assert settings.delivery.sink == ClassSetting("parquet", {"path": str(tmp_path / "out")})
    assert settings.delivery.on == "matches"
    assert settings.trending.operator == ClassSetting("trending", {"region_deg": 2.0})
    assert settings.needs_kafka
    file.write_text(text.replace("per_interval = 5", "per_interval = 0\ndigest = false"))
    with pytest.raises(SettingsError, match=r"line 8: \[delivery\] 0 matches per interval without a digest"):
        read_settings(file)


STAGES = (
    GOOD
    + """
[[stages]]
operator = "word-count"
window = 5
on = "matches"
interval_s = 30.0
sink = { kind = "parquet", path = "words" }

[[stages]]
operator = "count"
key = "country"
sink = { kind = "kafka", bootstrap = "b", topic = "t", options.acks = 1 }

[stages.tuning]
planner = "mixed-compact"
theta_max = 0.2
options = { level_bits = 5 }
"""
)


def test_any_operator_is_a_stage_with_its_own_parameters(tmp_path: Path) -> None:
    settings = read(tmp_path, STAGES)
    words, countries = settings.stages
    assert words.operator == ClassSetting("word-count", {"window": 5})
    assert (words.on, words.interval_s, words.executors) == ("matches", 30.0, None)
    assert words.sink == ClassSetting("parquet", {"path": str(tmp_path / "words")})
    assert countries.operator == ClassSetting("count", {"key": "country"})
    assert countries.sink.options["options"] == {"acks": "1"}
    assert countries.tuning == KeyBalancing(planner="mixed-compact", theta_max=0.2, options={"level_bits": 5})
    assert settings.needs_kafka


def test_a_strategy_takes_its_parameters_from_a_section_of_options(tmp_path: Path) -> None:
    settings = read(tmp_path, GOOD + '[tuning]\nstrategy = "swarm"\n[tuning.options]\nbeta = 7\n')
    assert settings.tuning == Tuning(strategy="swarm", options={"beta": 7})


def test_relative_paths_start_at_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir("/")
    text = GOOD.replace('kind = "tweets"', 'kind = "files"\npath = "in"')
    settings = read(tmp_path, text.replace('"console"', '"parquet"\npath = "s3://bucket/out"'))
    assert settings.checkpoint.path == str(tmp_path / "state")
    assert isinstance(settings.events, FilesSource)
    assert settings.events.path == str(tmp_path / "in")
    assert settings.sink == ClassSetting("parquet", {"path": "s3://bucket/out"})


def test_options_with_dots_need_no_quotes_and_become_text(tmp_path: Path) -> None:
    conf = '[spark.conf]\nspark.driver.memory = "4g"\nspark.sql.shuffle.partitions = 6\n"spark.ui.enabled" = true\n'
    assert read(tmp_path, GOOD + conf).spark.conf == {
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "6",
        "spark.ui.enabled": "true",
    }


ERRORS = {
    "an unknown key": (
        GOOD + '[tuning]\nexchnage = "rows"\n',
        "pipeline.toml, line 10: [tuning] has no key 'exchnage': did you mean 'exchange'?",
    ),
    "an unknown key like no other": (
        GOOD + "[trigger]\nzzz = 1\n",
        "pipeline.toml, line 10: [trigger] has no key 'zzz': there are 'every_s', 'available_now'",
    ),
    "an unknown key of one kind of source": (
        GOOD.replace('"tweets"', '"tweets"\ncuontry = "DE"'),
        "pipeline.toml, line 6: [events] has no key 'cuontry': did you mean 'country'?",
    ),
    "an unknown strategy": (
        GOOD + '[tuning]\nstrategy = "replicate"\n',
        "pipeline.toml, line 10: [tuning] there is no strategy 'replicate': did you mean 'replicated'? There are "
        + ", ".join(f"'{name}'" for name in sorted(strategies())),
    ),
    "an unknown parameter of a strategy": (
        GOOD + '[tuning]\nstrategy = "swarm"\n[tuning.options]\nmerge_every_rounds = 9\nbta = 3\n',
        "pipeline.toml, line 13: [tuning.options] has no key 'bta': did you mean 'beta'?",
    ),
    "a parameter of a strategy out of range": (
        GOOD + '[tuning]\nstrategy = "swarm"\noptions.beta = 0\n',
        "pipeline.toml, line 11: [tuning.options] beta is 0: give 1 or more",
    ),
    "parameters of a strategy that do not fit": (
        GOOD + '[tuning]\nstrategy = "ps2-adjusted"\n[tuning.options]\nsigma = 1.1\naim = 1.2\n',
        "pipeline.toml, line 13: [tuning.options] aim 1.2 is above sigma 1.1, so nothing would move: give 1 to sigma",
    ),
    "an unknown sink": (
        GOOD.replace('"console"', '"parkuet"'),
        "pipeline.toml, line 8: [sink] has no kind 'parkuet': did you mean 'parquet'?",
    ),
    "an unknown parameter of a sink": (
        GOOD.replace('"console"', '"console"\nrow_max = 3'),
        "pipeline.toml, line 9: [sink] has no key 'row_max': did you mean 'rows_max'?",
    ),
    "a sink without what it needs": (
        GOOD.replace('"console"', '"parquet"'),
        "pipeline.toml, line 7: [sink] lacks the key 'path': add it",
    ),
    "a sink with an empty path": (
        GOOD.replace('"console"', '"parquet"\npath = ""'),
        "pipeline.toml, line 9: [sink] path is empty: give it a value",
    ),
    "an operator in a section that is called by its own": (
        GOOD + '[trending]\noperator = "count"\nsink = { kind = "console" }\n',
        "pipeline.toml, line 10: [trending] operator is trending, which the section is called by: leave the key out",
    ),
    "a pace that is none": (
        GOOD.replace('"tweets"', '"tweets"\nrows_per_batch = 0'),
        "pipeline.toml, line 6: [events] rows_per_batch of the generator is 0: give 1 or more",
    ),
    "a pace and a parameter that are wrong": (
        GOOD.replace('"tweets"', '"tweets"\npaced = 1\nseed = "x"'),
        "pipeline.toml, line 6: [events] paced is 1: give true or false, without quotes\n"
        "pipeline.toml, line 7: [events] seed is 'x': give a whole number, without quotes",
    ),
    "an unknown operator": (
        STAGES.replace('"count"', '"cuont"'),
        "pipeline.toml, line 18: [[stages]] has no operator 'cuont': did you mean 'count'?",
    ),
    "an unknown parameter of an operator": (
        STAGES.replace("window = 5", "windw = 5"),
        "pipeline.toml, line 12: [[stages]] has no key 'windw': did you mean 'window'?",
    ),
    "an operator's parameter of the wrong type": (
        STAGES.replace('key = "country"', "key = 7"),
        "pipeline.toml, line 19: [[stages]] key is 7: give text, in quotes",
    ),
    "a parameter that an operator refuses": (
        STAGES.replace("window = 5", "window = 0"),
        "pipeline.toml, line 10: [[stages]] a window of 0 intervals holds nothing: use 1 or more; 1 is the present "
        "interval only",
    ),
    "a stage without a sink": (
        STAGES.replace('sink = { kind = "parquet", path = "words" }', ""),
        "pipeline.toml, line 10: [[stages]] lacks the key 'sink': add it",
    ),
    "a planner that only compares": (
        STAGES.replace('"mixed-compact"', '"pkg"').replace("options = { level_bits = 5 }", ""),
        "pipeline.toml, line 23: [stages.tuning] planner pkg does not route by a plan: a stream would route by plain "
        "hash, and report loads that are not true. It is there to compare with: use one of hash, llfd, min-mig, "
        "min-table, mixed, mixed-bf, mixed-compact, readj, readj-searched, readj-sorted, simple",
    ),
    "an unknown section": (
        GOOD + "[triger]\n",
        "pipeline.toml, line 9: there is no section [triger]: did you mean [trigger]?",
    ),
    "a missing section": (
        GOOD.replace('[sink]\nkind = "console"', ""),
        'pipeline.toml: there is no section [sink]: add [sink] with kind = "parquet", "kafka" or "console"',
    ),
    "a missing key": (
        GOOD.replace('path = "state"', ""),
        "pipeline.toml, line 1: [checkpoint] lacks the key 'path': add it",
    ),
    "a missing kind": (
        GOOD + '[operations]\npath = "x"\n',
        "pipeline.toml, line 9: [operations] lacks the key 'kind': say files or kafka",
    ),
    "messages without the address of their schemas": (
        GOOD + '[operations]\nkind = "kafka"\nbootstrap = "a:1"\ntopic = "b"\nformat = "avro"\n',
        "pipeline.toml, line 9: [operations] messages in avro are not read with a registry: write registry = "
        '"http://HOST:PORT"',
    ),
    "ids of a kind that there is not": (
        GOOD + '[contract]\nsubscription_ids = "uuid"\n',
        "pipeline.toml, line 10: [contract] subscription_ids cannot be 'uuid': there are 'integer', 'text'",
    ),
    "an unknown kind": (
        GOOD.replace("tweets", "twets"),
        "pipeline.toml, line 5: [events] has no kind 'twets': did you mean 'tweets'?",
    ),
    "text for a number": (
        GOOD + '[contract]\nexecutors = "8"\n',
        "pipeline.toml, line 10: [contract] executors is '8': give a whole number, without quotes",
    ),
    "a number for text": (
        GOOD.replace('"state"', "1"),
        "pipeline.toml, line 2: [checkpoint] path is 1: give text, in quotes",
    ),
    "text for true": (
        GOOD + '[trigger]\navailable_now = "yes"\n',
        "pipeline.toml, line 10: [trigger] available_now is 'yes': give true or false, without quotes",
    ),
    "a value below its limit": (
        GOOD + "[contract]\nexecutors = 0\n",
        "pipeline.toml, line 10: [contract] executors is 0: give 1 or more",
    ),
    "a range for a number": (
        GOOD + "[contract]\nexecutors = { min = 2, max = 4 }\n",
        "pipeline.toml, line 10: [contract.executors] is a range, which any start may change: write it in [tuning], "
        "Tuning(executors=...)",
    ),
    "a number for a range": (
        GOOD + "[tuning]\nexecutors = 4\n",
        "pipeline.toml, line 10: [tuning] executors is one number: give a range, { min = 2, max = 64 }, or write the "
        "number in [contract]",
    ),
    "a range that is upside down": (
        GOOD + "[tuning]\nexecutors = { min = 9, max = 4 }\n",
        "pipeline.toml, line 10: [tuning.executors] min 9 is above max 4: swap them",
    ),
    "a choice that is none": (
        GOOD + '[tuning]\nmatches = "array"\n',
        "pipeline.toml, line 10: [tuning] matches cannot be 'array': did you mean 'arrays'?",
    ),
    "an empty path": (
        GOOD.replace('"state"', '""'),
        "pipeline.toml, line 2: [checkpoint] path is empty: give it a value",
    ),
    "a value where a section should be": (
        "trigger = 1\n" + GOOD,
        "pipeline.toml, line 1: trigger is 1: write it as a section, [trigger]",
    ),
    "a key inside an inline table": (
        "trigger = { every = 1 }\n" + GOOD,
        "pipeline.toml, line 1: [trigger] has no key 'every': did you mean 'every_s'?",
    ),
    "a dotted key": (
        "trigger.every_s = -1\n" + GOOD,
        "pipeline.toml, line 1: [trigger] every_s is -1: give 0 or more",
    ),
    "a stream without an end that is to end": (
        GOOD + "[trigger]\navailable_now = true\n",
        "pipeline.toml, line 10: [trigger] available_now never ends on tweets without an end: give [events] rows_total",
    ),
    "two triggers": (
        GOOD.replace('"tweets"', '"tweets"\nrows_total = 1') + "[trigger]\navailable_now = true\nevery_s = 1\n",
        "pipeline.toml, line 12: [trigger] has both every_s and available_now: keep one of them",
    ),
    "tweets outside the world": (
        GOOD + "[contract]\nbounds = [0, 0, 1, 1]\n",
        "pipeline.toml, line 10: [contract] bounds [0.0, 0.0, 1.0, 1.0] do not hold the tweets, "
        "drawn within [-180.0, -90.0, 180.0, 90.0]: widen them, or give [events] bounds",
    ),
}


@pytest.mark.parametrize(("text", "complaint"), ERRORS.values(), ids=ERRORS)
def test_an_error_names_its_line_and_the_remedy(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaints(tmp_path, text) == complaint.splitlines()


def test_bounds_without_area_are_named_on_their_own_line(tmp_path: Path) -> None:
    (complaint,) = complaints(tmp_path, GOOD + "[contract]\ncolumns = 10\nbounds = [1, 1, 0, 0]\n")
    assert complaint.startswith("pipeline.toml, line 11: [contract] bounds (1.0, 1.0, 0.0, 0.0) enclose no area")


def test_a_country_that_does_not_exist_is_refused_before_spark_starts(tmp_path: Path) -> None:
    (complaint,) = complaints(tmp_path, GOOD.replace('"tweets"', '"tweets"\ncountry = "XX"'))
    assert complaint.startswith("pipeline.toml, line 6: [events] country 'XX' is none of")


def test_folders_and_files_that_are_not_there_are_refused_before_spark_starts(tmp_path: Path) -> None:
    text = GOOD.replace('"tweets"', '"files"\npath = "in"') + '[subscriptions]\npath = "subs.parquet"\n'
    assert complaints(tmp_path, text) == [
        "pipeline.toml, line 6: [events] path in is no folder: create it; files put there are read as a stream",
        "pipeline.toml, line 11: [subscriptions] path subs.parquet is no file: give a Parquet file of subscriptions",
    ]


def test_all_errors_are_reported_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    text = (
        '[tuning]\nmatchs = "pairs"\n' + GOOD.replace("state", "") + "[contract]\nrows = 1.5\n[trigger]\nevery_s = -1\n"
    )
    assert [line.split(":")[0] for line in complaints(tmp_path, text)] == [
        "pipeline.toml, line 2",
        "pipeline.toml, line 4",
        "pipeline.toml, line 12",
        "pipeline.toml, line 14",
    ]


def test_text_that_is_no_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    (complaint,) = complaints(tmp_path, GOOD + "[trigger]\nevery_s = one\n")
    assert complaint.startswith("pipeline.toml, line 10: no valid TOML at column 11")


def test_a_file_that_is_not_there_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nothing\.toml cannot be read"):
        read_settings(tmp_path / "nothing.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xe9")
    with pytest.raises(SettingsError, match="no UTF"):
        read_settings(tmp_path / "latin.toml")


def test_the_line_of_a_key_is_not_looked_for_inside_long_text() -> None:
    lines = key_lines('[a]\nb = """\nc = 1\n[d]\n"""\nc = 2\n[d."e.f"]\n g.h = 1\n')
    assert find_line(lines, ("a", "c")) == 6
    assert find_line(lines, ("d", "e.f", "g", "h")) == 8
    assert find_line(lines, ("d", "e.f", "nothing")) == 7
    assert find_line(lines, ("nothing",)) == 0


@pytest.mark.parametrize(
    "example", sorted((Path(__file__).parents[2] / "examples").glob("*.toml")), ids=lambda p: p.name
)
def test_every_example_is_a_good_settings_file(tmp_path: Path, example: Path) -> None:
    for folder in ("events", "operations"):
        (tmp_path / folder).mkdir()
    if (own := example.with_suffix("")).is_dir():
        shutil.copytree(own, tmp_path, dirs_exist_ok=True)
    assert read(tmp_path, example.read_text()).checkpoint.path.startswith(str(tmp_path))


def test_a_key_file_may_be_named_but_must_be_there(tmp_path: Path) -> None:
    text = GOOD + '\n[encryption]\nkey_file = "key"\n'
    (complaint,) = complaints(tmp_path, text)
    assert "[encryption] key_file key is no file: make one with `geoswarm key FILE`" in complaint
    (tmp_path / "key").touch()
    settings = read(tmp_path, text)
    assert settings.encryption is not None
    assert settings.encryption.key_file == str(tmp_path / "key")


def test_operations_are_read_with_the_ids_of_the_contract(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    section = '[contract]\nsubscription_ids = "text"\n[operations]\nkind = "files"\npath = "in"\nformat = "json"\n'
    source = build_sources(read(tmp_path, GOOD + section))["operations"]
    assert str(source.schema.field("sub_id").type) == "string"


def test_the_columns_of_a_source_have_a_section_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    section = 'kind = "files"\npath = "in"\nformat = "json"\nts_unit = "ms"\n\n[events.columns]\n'
    text = GOOD.replace('kind = "tweets"\n', section + 'x = "lng"\nevent_id = "trip.id"\n')
    settings = read(tmp_path, text)
    assert isinstance(settings.events, FilesEvents)
    assert settings.events.columns == {"x": "lng", "event_id": "trip.id"}
    assert settings.events.ts_unit == "ms"
    (tmp_path / "in" / "0.jsonl").write_text('{"trip": {"id": 7}, "ts": 5, "lng": 1.5, "y": 2.5}\n')
    source = build_sources(settings)["events"]
    source.open(StreamLog(str(tmp_path / "log")), 0, available_now=True)
    (task,) = source.read(None, source.latest(None))
    ((row,),) = (batch.to_pylist() for batch in task())
    assert (row["event_id"], row["x"], row["ts"].microsecond) == (7, 1.5, 5000)
    (complaint,) = complaints(tmp_path, text.replace('"lng"', '"trip."'))
    assert complaint.startswith("pipeline.toml, line 10: [events.columns] ")
    assert "the column 'trip.' cannot be read" in complaint
    (complaint,) = complaints(tmp_path, text.replace('"ms"', '"minutes"'))
    assert complaint.startswith("pipeline.toml, line 8: [events] ts_unit cannot be 'minutes'")
    (complaint,) = complaints(tmp_path, text.replace('"lng"', '"trip.id"'))
    assert "columns x and event_id are both taken from trip.id" in complaint
