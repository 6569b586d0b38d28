"""A settings file is read whole, or every one of its errors is named with its line and a remedy."""

from pathlib import Path

import pytest

from geoswarm.config import Contract, Tuning
from geoswarm.errors import SettingsError
from geoswarm.lab.workload.posts import Posts
from geoswarm.service.cli.settings_file import FilesSource, PipelineSettings, PostsEvents, TweetsEvents, read_settings
from geoswarm.service.cli.toml_lines import find_line, key_lines

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
    assert isinstance(settings.events, TweetsEvents)
    assert settings.operations is None
    assert settings.trigger.every_s == 0
    assert not settings.needs_kafka


def test_posts_with_words_are_a_source_with_options_of_their_own(tmp_path: Path) -> None:
    text = GOOD.replace('"tweets"', '"posts"\ncountry = "DE"\nwords = 500\nrows_total = 9')
    settings = read(tmp_path, text)
    assert isinstance(settings.events, PostsEvents)
    assert settings.events.workload() == Posts(country="DE", words=500)
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
    assert settings.delivery.sink.path == str(tmp_path / "out")  # type: ignore[union-attr]
    assert settings.trending.window == 6
    assert settings.needs_kafka
    file.write_text(text.replace("per_interval = 5", "per_interval = 0\ndigest = false"))
    with pytest.raises(SettingsError, match=r"line 10: \[delivery\] neither"):
        read_settings(file)


def test_relative_paths_start_at_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir("/")
    text = GOOD.replace('kind = "tweets"', 'kind = "files"\npath = "in"')
    settings = read(tmp_path, text.replace('"console"', '"parquet"\npath = "s3://bucket/out"'))
    assert settings.checkpoint.path == str(tmp_path / "state")
    assert isinstance(settings.events, FilesSource)
    assert settings.events.path == str(tmp_path / "in")
    assert getattr(settings.sink, "path", None) == "s3://bucket/out"


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
    assert complaints(tmp_path, text) == [complaint]


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
    assert read(tmp_path, example.read_text()).checkpoint.path.startswith(str(tmp_path))


def test_a_key_file_may_be_named_but_must_be_there(tmp_path: Path) -> None:
    text = GOOD + '\n[encryption]\nkey_file = "key"\n'
    (complaint,) = complaints(tmp_path, text)
    assert "[encryption] key_file key is no file: make one with `geoswarm key FILE`" in complaint
    (tmp_path / "key").touch()
    settings = read(tmp_path, text)
    assert settings.encryption is not None
    assert settings.encryption.key_file == str(tmp_path / "key")
